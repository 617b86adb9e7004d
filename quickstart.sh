#!/bin/bash
# Installs what is missing, builds, and trains examples/fashion_mnist_mlp.textproto on this machine with one chief, two
# ps and two workers. Arguments go to `lagrange local`; for instance ./quickstart.sh --consistency=bsp --report=out.json
set -euo pipefail
cd "$(dirname "$0")"
tools/install_packages.sh
echo "building (some minutes the first time)"
bazel build --color=no --curses=no --show_progress_rate_limit=20 //cli:lagrange //chief:lagrange-chief \
  //ps:lagrange-ps //worker:lagrange-worker
exec "$(bazel info bazel-bin 2>/dev/null)/cli/lagrange" local --job=examples/fashion_mnist_mlp.textproto "$@"
