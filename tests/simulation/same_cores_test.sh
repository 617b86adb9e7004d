#!/bin/bash
# Every core library that a daemon links is linked by the simulation too, and the other way round, but for the ps engine's
# second instantiation (the same code under a lock that locks).
set -eu
only_threaded='^//ps/core:engine(_thread_safe)?(\.cc|_thread_safe\.cc)?$'
for core in //ps/core:shard //chief/core:chief //worker/core:step_loop //ps/core:engine_impl; do
  for list in "$1" "$2"; do
    grep -qx "$core" "$list" || { echo "$core is not in $list: the query looks for the wrong thing"; exit 1; }
  done
done
if ! diff <(grep -vE "$only_threaded" "$1" | sort) <(grep -vE "$only_threaded" "$2" | sort); then
  echo "the simulation (<) and the daemons (>) link different cores"
  exit 1
fi
echo "$(wc -l <"$1") labels of cores are the same in both"
