#!/usr/bin/env bash
# A TPU on Google Cloud: one host, or the several hosts of a slice.
#
#   tpu_vm.sh create | install | start [FLAG OF train.py ...] | watch | stop |
#             delete
#
# NOT RUN ON HARDWARE: the tests check the syntax and, with a stand-in for
# gcloud, the calls that are made. README.md beside this file is in order.
#
# From the environment:
#   TPU_VM            name to give it
#   ZONE              such as us-west4-a
#   ACCELERATOR_TYPE  such as v5litepod-8 (one host) or v5litepod-16 (a slice)
#   MODEL_DIR         gs://BUCKET/FOLDER for what the run leaves behind
#   RUNTIME_VERSION   image of the hosts; empty: by ACCELERATOR_TYPE, as
#                     cloud.google.com/tpu/docs/runtimes has it
#   SPOT              1: cheaper, may be taken away at any time
#   PJRT              0: without the variables of the newer TPU runtime
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
FOLDER=training_template  # in the home of each host
PORT=8470                 # where TensorFlow looks for the hosts of a slice

fail() { echo "tpu_vm.sh: $1" >&2; exit 2; }

need() {
  for name; do
    [[ -n ${!name:-} ]] || fail "$name is not set; README.md says to what."
  done
}

on() {  # on all|0 COMMAND
  gcloud compute tpus tpu-vm ssh "$TPU_VM" --zone="$ZONE" --worker="$1" \
    --command="$2"
}

image() {
  case $ACCELERATOR_TYPE in
    v6e-*) echo v2-alpha-tpuv6e ;;
    v5p-*) echo v2-alpha-tpuv5 ;;
    v5litepod-*) echo v2-alpha-tpuv5-lite ;;
    *) echo tpu-ubuntu2204-base ;;
  esac
}

create() {
  need ACCELERATOR_TYPE
  gcloud compute tpus tpu-vm create "$TPU_VM" --zone="$ZONE" \
    --accelerator-type="$ACCELERATOR_TYPE" \
    --version="${RUNTIME_VERSION:-$(image)}" ${SPOT:+--spot}
}

# Sends this checkout. Python 3.10 of those images is too old for it.
install() {
  local archive
  archive=$(mktemp --suffix=.tar.gz)
  tar -czf "$archive" -C "$ROOT" --exclude='./.*' --exclude=./runs \
    --exclude=__pycache__ .
  gcloud compute tpus tpu-vm scp "$archive" "$TPU_VM:$FOLDER.tar.gz" \
    --zone="$ZONE" --worker=all
  rm "$archive"
  # The extra has the pinned pair of tensorflow-tpu and libtpu.
  on all "sudo apt-get -qq update &&
    sudo apt-get -qq install -y python3.11 python3.11-venv &&
    mkdir -p $FOLDER && tar -xzf $FOLDER.tar.gz -C $FOLDER && cd $FOLDER &&
    python3.11 -m venv .venv &&
    .venv/bin/pip install --quiet --editable '.[tpu]'"
}

# For the process that holds the chips. Found in Keras's guide on embeddings
# with tensorflow-tpu 2.19 (keras.io/keras_rs/guides) and in start scripts of
# v5e and v6e. One such script says that v4 fails with them, while Google's
# own examples have pjrt images on v4: PJRT=0 is the way back.
environment() {
  [[ ${PJRT:-1} == 1 ]] || return 0
  echo 'PJRT_DEVICE=TPU NEXT_PLUGGABLE_DEVICE_USE_C_API=true' \
    'TF_PLUGGABLE_DEVICE_LIBRARY_PATH=$(.venv/bin/python -c' \
    '"import libtpu; print(libtpu.get_library_path())")'
}

# Prints the command that leaves COMMAND running as $1.pid, heard in $1.log.
detached() {  # detached NAME VARIABLES COMMAND
  echo "cd $FOLDER && { $2 nohup $3 > $1.log 2>&1 < /dev/null &" \
    "echo \$! > $1.pid; }"
}

# Prints the addresses of the hosts, in the order of their numbers.
hosts() {
  gcloud compute tpus tpu-vm describe "$TPU_VM" --zone="$ZONE" \
    --format='value(networkEndpoints[].ipAddress)' | tr ';,' '  '
}

# Images whose names end in -pod start such a server by themselves, but with a
# TensorFlow of their own, which must be the client's. We found none with 2.20,
# so each host runs one from our environment, as that image's container does.
# That a client reaches such a server was tried on CPUs with tensorflow-tpu.
serve() {
  local server="import tensorflow as tf; tf.distribute.Server({'tpu_worker': \
['localhost:$PORT']}, 'tpu_worker', 0, 'grpc').join()"
  on all "kill -0 \$(cat $FOLDER/server.pid 2> /dev/null) 2> /dev/null || { $(
    detached server "$(environment)" ".venv/bin/python -c \"$server\""); }"
}

start() {
  need MODEL_DIR
  [[ $MODEL_DIR == gs://?* ]] ||
    fail "MODEL_DIR=$MODEL_DIR is not gs://BUCKET/FOLDER, which outlives a TPU."
  local list addresses tpu variables flags=""
  list=$(hosts)
  read -ra addresses <<< "$list"
  ((${#addresses[@]})) || fail "$TPU_VM has no addresses yet; try again later."
  if ((${#addresses[@]} == 1)); then
    tpu=local variables=$(environment)
  else
    serve
    tpu=$(printf ",grpc://%s:$PORT" "${addresses[@]}")
    # The chips of host 0 are its server's; this process must not take them.
    tpu=${tpu:1} variables="TPU_LOAD_LIBRARY=0"
  fi
  (($# == 0)) || flags=$(printf ' %q' "$@")
  # Two trainings would fight for the chips, and for the folder.
  on 0 "if kill -0 \$(cat $FOLDER/train.pid 2> /dev/null) 2> /dev/null; then \
echo 'a training runs already; end it with: tpu_vm.sh stop' >&2; exit 2; fi; \
$(detached train "$variables" ".venv/bin/python train.py \
--strategy=tpu --tpu=$tpu --model_dir=$(printf %q "$MODEL_DIR")$flags")"
}

watch() { on 0 "tail -n +1 -F $FOLDER/train.log"; }

# The run saves and ends with code 42; `start` with the same flags continues.
stop() {
  on 0 "cd $FOLDER && kill \$(cat train.pid) &&
    tail -f /dev/null --pid=\$(cat train.pid) && tail -n 3 train.log"
}

delete() {
  gcloud compute tpus tpu-vm delete "$TPU_VM" --zone="$ZONE" --quiet
}

case ${1:-} in
  create | install | start | watch | stop | delete) ;;
  *) fail "'${1:-}' is none of create, install, start, watch, stop, delete." ;;
esac
need TPU_VM ZONE
command -v gcloud > /dev/null ||
  fail "gcloud is not installed; see cloud.google.com/sdk/docs/install."
"$@"
