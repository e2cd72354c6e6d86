#!/usr/bin/env bash
# Two workers by hand, as on two machines; one is killed, and both go on.
#
#     bash examples/two_workers.sh [FOLDER [FLAG ...]]
#
# launch.py does all of this, on one machine, by itself. Here it is taken apart:
# a TF_CONFIG for each worker, the same command and the same --model_dir on both.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
mkdir -p runs
folder=${1:-$(mktemp -d runs/two_workers.XXXX)}
mkdir -p "$folder"
if [ -n "$(ls -A "$folder")" ]; then
    echo "two_workers.sh: $folder is not empty; give a new folder." >&2
    exit 2
fi

# Two free ports of this machine. On machines of their own: any, the same on all.
read -r port0 port1 < <("$python" -c '
import socket
sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
print(*(s.getsockname()[1] for s in sockets))')
cluster="{\"worker\": [\"127.0.0.1:$port0\", \"127.0.0.1:$port1\"]}"

worker=()
trap 'kill "${worker[@]}" 2> /dev/null || true' EXIT

start() { # index, then flags
    local index=$1
    shift
    TF_CONFIG="{\"cluster\": $cluster, \"task\": {\"type\": \"worker\", \"index\": $index}}" \
        "$python" train.py --strategy=multi_worker_mirrored --model=mlp \
        --train_steps=2000 --steps_per_loop=20 --checkpoint_every_steps=100 \
        --model_dir="$folder" "$@" > "$folder/worker-$index.log" 2>&1 &
    worker[index]=$!
}

start_both() {
    start 0 "$@"
    start 1 "$@"
}

echo "Both start."
start_both "${@:2}"
until compgen -G "$folder/checkpoints/step-*.json" > /dev/null; do
    kill -0 "${worker[@]}" 2> /dev/null || { cat "$folder"/worker-*.log; exit 1; }
    sleep 0.2
done

echo "Worker 1 is killed."
kill -KILL "${worker[1]}"
wait "${worker[1]}" 2> /dev/null || true
code=0
wait "${worker[0]}" || code=$?
echo "Worker 0 ended with exit code $code: $(grep '^train.py: ' "$folder/worker-0.log")"

echo "Both start again, with the same command."
start_both "${@:2}"
wait "${worker[0]}"
wait "${worker[1]}"
grep -E '^(Continuing|Evaluation) ' "$folder/worker-0.log"
echo "Both ended with exit code 0. Their logs and the run: $folder"
