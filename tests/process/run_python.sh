#!/bin/bash
# Runs a test script of this folder with Debian's Python. The first argument is the script, the rest are its own.
exec env PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=tests/process /usr/bin/python3 "$@"
