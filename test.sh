#!/bin/bash
# Installs what is missing and runs the tests.
#   ./test.sh             the fast tier: bazel test //...
#   ./test.sh --ci        adds the slow tests, the sanitizers, clang's analyses and nvcc
#   ./test.sh --nightly   all that --ci runs, and every test tagged nightly
# Closes with a line "N passed, N failed, N skipped" that sums every stage, and fails if anything failed.
set -uo pipefail
cd "$(dirname "$0")" || exit

tier=fast
case "${1:-}" in
  "") ;;
  --ci) tier=ci ;;
  --nightly) tier=nightly ;;
  -h | --help) sed -n '2,7s/^# \?//p' "$0"; exit 0 ;;
  *) echo "usage: ./test.sh [--ci|--nightly]" >&2; exit 2 ;;
esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0 skipped=0 times=""

# add PASSED FAILED SKIPPED
add() { passed=$((passed + $1)); failed=$((failed + $2)); skipped=$((skipped + $3)); }

# stage NAME COMMAND...: runs it and notes its time. The command adds its own counts.
stage() {
  local name=$1 began=$SECONDS before=$failed
  shift
  echo "=== $name"
  "$@"
  local verdict=ok
  [ "$failed" -eq "$before" ] || verdict=FAILED
  times+=$(printf '%-22s %5d s  %s' "$name" $((SECONDS - began)) "$verdict")$'\n'
}

# One test case that is a command. Exit status 77: there was nothing to do it with.
check() {
  local status=0
  "$@" || status=$?
  case $status in 0) add 1 0 0 ;; 77) add 0 0 1 ;; *) add 0 1 0 ;; esac
}

# bazel_tests NAME ARGUMENTS...: counts GoogleTest's cases, not targets.
bazel_tests() {
  local events=$work/$1.json
  shift
  bazel test --build_event_json_file="$events" --keep_going --color=no --curses=no --show_progress_rate_limit=30 "$@"
  local status=$?
  local counts
  if ! counts=$(/usr/bin/python3 tools/count_tests.py "$events"); then
    add 0 1 0
    return
  fi
  # shellcheck disable=SC2086
  add $counts
  # bazel failed, and no test says so: what it could not analyse or build, or filters that nothing matches.
  read -r _ count _ <<< "$counts"
  if [ $status -ne 0 ] && [ "$count" -eq 0 ]; then add 0 1 0; fi
}

packages() { check tools/install_packages.sh --test; }
fast() { bazel_tests fast //...; }
slow() { bazel_tests slow --test_tag_filters=slow,-nightly //...; }
nightly() { bazel_tests nightly --test_tag_filters=nightly //...; }
asan() { bazel_tests asan --config=asan --test_tag_filters=-slow,-nightly,-benchmark,-exclusive,-no_sanitizer //...; }
# Only what links no gRPC: Debian's is not instrumented, and TSan would take its locks for none.
tsan() { bazel_tests tsan --config=tsan --test_tag_filters=tsan //...; }
# Benchmarks and programs that no test names.
build_all() { check bazel build --color=no --curses=no --show_progress_rate_limit=60 //...; }
thread_safety() { check tools/clang_checks.sh thread-safety; }
tidy() { check tools/clang_checks.sh tidy "$1"; }
cuda() { check tools/cuda_check.sh; }

stage "packages" packages
[ "$failed" -eq 0 ] || { echo "packages are missing" >&2; echo "$passed passed, $failed failed, $skipped skipped"; exit 1; }
stage "fast tests" fast
if [ $tier != fast ]; then
  stage "all targets build" build_all
  stage "slow tests" slow
  stage "ASan and UBSan" asan
  stage "TSan" tsan
  stage "clang thread safety" thread_safety
  if [ $tier = ci ]; then stage "clang-tidy" tidy changed; fi
  stage "nvcc" cuda
fi
if [ $tier = nightly ]; then
  stage "clang-tidy, all files" tidy all
  stage "nightly tests" nightly
fi

printf '\n%s\n' "$times"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
