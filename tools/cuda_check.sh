#!/bin/bash
# Compiles every .cu file with nvcc; exits with 77 where there is none. The CPU backend needs none of them.
set -euo pipefail
cd "$(dirname "$0")/.."
files=$(git ls-files '*.cu')
nvcc=${CUDA_HOME:-/usr/local/cuda}/bin/nvcc
if [ -z "$files" ]; then echo "0 .cu files to compile"; exit 77; fi
if [ ! -x "$nvcc" ]; then echo "nvcc isn't at $nvcc: $(echo "$files" | wc -l) .cu files not compiled"; exit 77; fi
for file in $files; do
  "$nvcc" -std=c++17 -O3 -arch=sm_90 -I. -c "$file" -o /dev/null
done
echo "$(echo "$files" | wc -l) .cu files compile for sm_90"
