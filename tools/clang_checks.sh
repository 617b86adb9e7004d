#!/bin/bash
# clang's own analyses, which g++ does not have.
#   tools/clang_checks.sh thread-safety        every .cc under -Wthread-safety -Werror
#   tools/clang_checks.sh tidy changed|all     clang-tidy; changed: since $LAGRANGE_BASE, else the commit before HEAD
set -euo pipefail
cd "$(dirname "$0")/.."

# clang-tidy took 6 to 9 s of a busy core a file: two cores do so many in three minutes.
max_tidied=40

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# The generated protos must exist, and lie below this.
bazel build --color=no --curses=no --noshow_progress //proto/... > "$scratch/build" 2>&1 ||
  { cat "$scratch/build" >&2; echo "the protos don't build" >&2; exit 1; }
generated=$(bazel info bazel-bin 2>/dev/null)
flags=(-std=c++17 -I. -isystem "$generated" -DSPDLOG_SHARED_LIB -DSPDLOG_COMPILED_LIB -DSPDLOG_FMT_EXTERNAL)

sources() { git ls-files '*.cc'; }

# The .cc files changed since $1, a header standing for the source of its name, latest change first.
changed_since() {
  { git diff --name-only HEAD -- '*.cc' '*.h'; git log --format= --name-only "$1..HEAD" -- '*.cc' '*.h'; } |
    sed 's/\.h$/.cc/' | awk '!seen[$0]++' | while read -r file; do if [ -f "$file" ]; then echo "$file"; fi; done
}

# clang reads the headers that nearly every file includes once, instead of once a file: half the time.
precompile() {
  local header
  for header in algorithm filesystem functional map optional set string thread variant vector absl/status/statusor.h \
    absl/strings/str_cat.h absl/synchronization/mutex.h absl/time/time.h gmock/gmock.h grpcpp/grpcpp.h gtest/gtest.h \
    proto/control_plane.grpc.pb.h proto/data_plane.pb.h; do
    echo "#include <$header>"
  done > "$scratch/common.h"
  clang++ -x c++-header "${flags[@]}" "$scratch/common.h" -o "$scratch/common.pch"
}

case "${1:-}" in
  thread-safety)
    precompile
    sources | xargs -P "$(nproc)" -n 1 clang++ -fsyntax-only -Wthread-safety -Werror -include-pch "$scratch/common.pch" \
      "${flags[@]}"
    echo "$(sources | wc -l) files are clean under -Wthread-safety"
    ;;
  tidy)
    base=${LAGRANGE_BASE:-$(git rev-parse --verify -q HEAD~1 || true)}
    if [ "${2:-}" = all ] || [ -z "$base" ]; then files=$(sources); else files=$(changed_since "$base"); fi
    [ -n "$files" ] || { echo "no .cc file has changed"; exit 0; }
    count=$(echo "$files" | wc -l)
    if [ "${2:-}" != all ] && [ "$count" -gt $max_tidied ]; then
      echo "$((count - max_tidied)) of $count changed files, those changed longest ago, are left to the nightly run"
      files=$(echo "$files" | sed "${max_tidied}q")
    fi
    echo "$files" | xargs -P "$(nproc)" -I '{}' clang-tidy --quiet --warnings-as-errors='*' '{}' -- "${flags[@]}" \
      2> >(grep -v 'warnings\? generated' >&2)
    echo "$(echo "$files" | wc -l) files are clean under clang-tidy"
    ;;
  *) sed -n '2,4s/^# \?//p' "$0"; exit 2 ;;
esac
