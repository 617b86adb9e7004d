#!/bin/bash
# Fails when a core links what a core must not: gRPC and its stubs, SQLite, logging, clocks, files, sockets.
set -eu
list=$1
[ -s "$list" ] || { echo "the query's result $list is empty: nothing was checked"; exit 1; }
banned='^@system//:(grpc|sqlite3|spdlog|absl_synchronization|zlib|openblas|dnnl)$|_grpc$|^//common:(clock|file_system|logging|metrics|net|signals|status_grpc)$'
if grep -E "$banned" "$list"; then
  echo "the labels above must not be reachable from a core library ($list)"
  exit 1
fi
