#!/bin/bash
# Runs count_tests_test.py with Debian's Python.
exec /usr/bin/python3 tests/count_tests_test.py tools/count_tests.py
