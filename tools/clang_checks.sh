#!/bin/bash
# clang's own analyses, which g++ does not have.
#   tools/clang_checks.sh thread-safety        every .cc under -Wthread-safety -Werror
#   tools/clang_checks.sh tidy changed|all     clang-tidy; changed: since $LAGRANGE_BASE, else the commit before HEAD
set -euo pipefail
cd "$(dirname "$0")/.."

# The generated protos must exist, and lie below this.
bazel build --color=no --curses=no --show_progress_rate_limit=60 //proto/... 2>/dev/null ||
  { echo "the protos don't build"; exit 1; }
generated=$(bazel info bazel-bin 2>/dev/null)
flags=(-std=c++17 -I. -isystem "$generated" -DSPDLOG_SHARED_LIB -DSPDLOG_COMPILED_LIB -DSPDLOG_FMT_EXTERNAL)

sources() { git ls-files '*.cc'; }

case "${1:-}" in
  thread-safety)
    sources | xargs -P "$(nproc)" -n 1 clang++ -fsyntax-only -Wthread-safety -Werror "${flags[@]}"
    echo "$(sources | wc -l) files are clean under -Wthread-safety"
    ;;
  tidy)
    if [ "${2:-}" = all ]; then
      files=$(sources)
    else
      base=${LAGRANGE_BASE:-$(git rev-parse --verify -q HEAD~1 || true)}
      if [ -n "$base" ]; then files=$(git diff --name-only --diff-filter=d "$base" -- '*.cc'); else files=$(sources); fi
    fi
    [ -n "$files" ] || { echo "no .cc file has changed"; exit 0; }
    echo "$files" | xargs -P "$(nproc)" -n 1 clang-tidy --quiet --warnings-as-errors='*' -- "${flags[@]}" 2> >(
      grep -v 'warnings generated' >&2)
    echo "$(echo "$files" | wc -l) files are clean under clang-tidy"
    ;;
  *) sed -n '2,4s/^# \?//p' "$0"; exit 2 ;;
esac
