#!/usr/bin/env bash
# Gradescope runs this once, while it builds the image: a Python with satlib in it, /autograder/venv, and torch for the CPU.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! python3 -m venv --clear uv 2>/dev/null; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3 python3-venv
    python3 -m venv --clear uv
fi
uv/bin/pip install --quiet uv
uv/bin/uv venv --quiet --clear --python ">=3.11" venv
packages=()
for wheel in source/*.whl; do
    case $wheel in source/satlib-*) wheel+="[course]" ;; esac
    packages+=("$wheel")
done
install() { uv/bin/uv pip install --quiet --python venv/bin/python "$@" "${packages[@]}"; }
install --torch-backend cpu || { echo "torch's own index cannot be reached; taking torch with CUDA"; install; }
venv/bin/satlib --version
