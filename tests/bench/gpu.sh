#!/bin/sh
# OInfer on a big GPU, beside PyTorch's CUDA libraries and known figures of llama.cpp, in one command:
#
#   tests/bench/gpu.sh [OINFER] [--device NAME] [--dir FOLDER] [--out RESULTS.json] [--only TEXT]
#
# OINFER: the program (build/release/oinfer). Nothing is downloaded: models are made in FOLDER (/dev/shm/oinfer-gpu, 40 GB,
# removed afterwards). Needs python3 with CUDA's PyTorch for the operators' peer; without it they are measured alone.
# Should take under ten minutes (not yet run whole); prints a table, and writes RESULTS.json, which tests/bench/plot_gpu.py draws.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
exec python3 "$here/gpu.py" "$@"
