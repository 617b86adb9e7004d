#!/bin/bash
# Runs tests/tidy.py over the source tree that the runfiles' WORKSPACE links to, or its self-test.
set -eu
script=$(readlink -f tests/tidy.py)
if [ "${1:-}" = "--self-test" ]; then exec /usr/bin/python3 "$script" --self-test; fi
exec /usr/bin/python3 "$script" "$(dirname "$(readlink -f WORKSPACE)")"
