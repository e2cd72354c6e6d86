#!/usr/bin/env bash
# Trains on a plain list of hosts, over ssh:
#
#   deploy/hosts/hosts.sh FILE [FLAG OF train.py ...]
#
# FILE has one host or user@host a line, as ssh knows it, with :port if 2222 is
# taken; the first keeps --model_dir. The names of the hosts must lead from each
# to the others.
# Each has this repository and its environment in the same folder as here, or
# in FOLDER, and lets ssh in without a password.
#
# A signal is passed on, so that the workers save; so is the end of this script
# or of a connection. If a worker fails, the others are asked to end.
#
# Exit codes: 0 all are done; 1 one failed, or cannot be reached; 2 the request
# was wrong; 42 interrupted and resumable: the same command goes on.
set -uo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
FOLDER=${FOLDER:-$ROOT}
PYTHON=${PYTHON:-.venv/bin/python} # seen from FOLDER

fail() { echo "hosts.sh: $1" >&2; exit 2; }

[[ -r ${1:-} ]] || fail "'${1:-}' is no file that lists hosts, one a line."
mapfile -t hosts < <(sed 's/#.*//; s/[[:space:]]//g; /^$/d' "$1")
shift
((${#hosts[@]})) || fail "the list of hosts is empty; write one a line."

workers=""
for host in "${hosts[@]}"; do
  host=${host#*@} # who logs in is for ssh alone
  [[ $host == *:* ]] || host=$host:2222
  workers+=",\"$host\""
done

# Prints what host number $1 runs. Its standard input ends when the training is
# to be stopped; its output may break off with the connection, which must not
# keep a worker from saving.
remote() {
  local index=$1 config script
  shift
  config="{\"cluster\": {\"worker\": [${workers:1}]},"
  config+=" \"task\": {\"type\": \"worker\", \"index\": $index}}"
  script="cd ${FOLDER@Q} || exit 2
export TF_CONFIG=${config@Q}
exec 3<&0 > >(cat; exec cat > /dev/null) 2>&1
$PYTHON train.py --strategy=multi_worker_mirrored ${*@Q} < /dev/null 3<&- &
worker=\$!
(while read -r _ <&3; do :; done; kill -TERM \$worker) &
wait \$worker
code=\$?
kill \$! 2> /dev/null
exit \$code"
  # Not @Q, which writes newlines as only bash reads them: the shell over there
  # may be another.
  echo "exec bash -c '${script//\'/\'\\\'\'}'"
}

start() {
  local host=${hosts[$1]%:*}
  ssh -o BatchMode=yes -o ServerAliveInterval=15 "$host" "$(remote "$@")" \
    <&3 2>&1 | sed -u "s/^/[$host] /"
}

# The workers' inputs (3) end when this script closes the other end (4). Each
# says with what code it has ended (5): `wait -n` may miss one.
pipes=$(mktemp -d)
trap 'rm -rf "$pipes"' EXIT
mkfifo "$pipes/input" "$pipes/codes"
exec 4<> "$pipes/input" 3< "$pipes/input" 5<> "$pipes/codes"
stop() { exec 4>&-; }
trap stop INT TERM HUP

running=${#hosts[@]} result=0
for index in "${!hosts[@]}"; do
  { start "$index" "$@"; echo $? >&5; } 4>&- &
done
while ((running)); do
  read -r code <&5 || continue # a signal came
  running=$((running - 1))
  ((code == 0)) && continue
  stop
  # A wrong request tells most, then a failure.
  case $code in
    2) result=2 ;;
    # 143: told to stop before it could listen.
    42 | 143) ((result)) || result=42 ;;
    *) ((result == 2)) || result=1 ;;
  esac
done
exit "$result"
