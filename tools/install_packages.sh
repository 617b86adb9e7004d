#!/bin/bash
# Installs the Debian packages that building, running and testing Lagrange need, and only those that are missing.
#   tools/install_packages.sh [--test]     --test adds what only the tests use
set -euo pipefail

packages=(
  g++ bazel-bootstrap bazel-rules-java bazel-rules-proto bazel-skylib pkg-config
  libgrpc++-dev protobuf-compiler protobuf-compiler-grpc libprotobuf-dev libabsl-dev
  libspdlog-dev libsqlite3-dev zlib1g-dev libopenblas-dev libdnnl-dev libisal-dev libcli11-dev nlohmann-json3-dev
  dataset-fashion-mnist ca-certificates
)
test_packages=(
  libgtest-dev libgmock-dev libbenchmark-dev python3 python3-numpy sqlite3 clang clang-format clang-tidy
  libclang-rt-14-dev git iproute2 procps
)
# Targets of the whole workspace name the test libraries too, so Bazel looks for them even in a build.
packages+=(libgtest-dev libgmock-dev libbenchmark-dev)
if [ "${1:-}" = "--test" ]; then packages+=("${test_packages[@]}"); fi

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

become=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "install these packages as root, then run this again: ${missing[*]}" >&2; exit 1; }
  become=(sudo)
fi
echo "installing ${#missing[@]} Debian packages: ${missing[*]}"
"${become[@]}" apt-get update -qq
"${become[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
