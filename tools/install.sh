#!/bin/sh
# Make .venv with satlib in it (editable) and all that it and its course need; with the argument `dev`, what its tests and its
# contributors need too, and with `site` what builds the site. `make` calls this from the checkout's root.
# Takes uv where it is installed, Python's own venv and pip otherwise. PYTHON=/path/to/python3.12 chooses the Python.
# On Linux without an NVIDIA GPU, torch comes from its own index, where it is built without CUDA; TORCH_INDEX names another one.
# .venv/.installed, and .venv/.dev with `dev`, are written at the very end, so that an installation that broke off is never taken
# for a whole one.
set -eu
extras=lab${1:+,$1}
TORCH_INDEX=${TORCH_INDEX:-https://download.pytorch.org/whl/cpu}

say() { echo "satlib: $*" >&2; }
die() { say "$*"; exit 1; }
trap 'die "stopped; the same command begins again"' INT TERM HUP

# The free disk here in GB, and a stop where there is less than is needed for something: pip would say so only after minutes.
free() { df -Pk . | awk 'NR == 2 { print int($4 / 1000000) }'; }
needs() {
    [ "$(free)" -ge "$1" ] || die "$2 needs $1 GB of disk, and $(free) GB are free here: make room, then run the same command again"
}

have_uv() { uv --version >/dev/null 2>&1; }
# A Python that runs (pyenv's and macOS's stand-ins may not) and has the right version; without uv, one that has venv.
fits() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }
has_venv() { have_uv || "$1" -c 'import ensurepip, venv' >/dev/null 2>&1; }
has_installer() { have_uv || "$1" -m pip --version >/dev/null 2>&1; }

find_python() {
    if [ -n "${PYTHON:-}" ]; then
        fits "$PYTHON" && has_venv "$PYTHON" && echo "$PYTHON" && return
        die "PYTHON=$PYTHON is no Python 3.11 or later with its venv module: name another one, or leave PYTHON unset"
    fi
    for candidate in python3 python3.12 python3.13 python3.14 python3.11; do
        if fits "$candidate" && has_venv "$candidate"; then echo "$candidate"; return; fi
    done
    if have_uv; then echo 3.12; return; fi  # uv fetches that one
    die "no Python 3.11 or later with its venv module: install one (macOS: brew install python@3.12; Debian, Ubuntu:" \
        "sudo apt-get install python3 python3-venv; anywhere: uv), then run the same command again"
}

packages() {
    if have_uv; then  # compiled once, as pip does: otherwise, where .pyc files may not be written, each start compiles torch anew
        uv pip install $quiet --compile-bytecode --python .venv/bin/python "$@"
    else
        .venv/bin/python -m pip install $quiet "$@"
    fi
}
install() { packages "$@" -e ".[$extras]" -e ./satlib-models; }
# PyPI's torch for Linux brings CUDA along, 5 GB that only an NVIDIA GPU can use; its wheels for macOS and Windows do not.
wants_light_torch() { [ "$(uname -s)" = Linux ] && ! nvidia-smi >/dev/null 2>&1; }
light_torch() { packages --no-deps --index-url "$TORCH_INDEX" --constraint constraints.txt torch torchvision; }

if ! [ -e .venv/.installed ]; then needs 3 "the installation"; fi
if [ -t 2 ]; then quiet=; else quiet=--quiet; fi  # progress for a person, nothing but errors in a log

if [ -e .venv ] || [ -L .venv ]; then
    if [ -e .venv/.installing ] || ! fits .venv/bin/python || ! has_installer .venv/bin/python; then
        say ".venv is not whole, or older than Python 3.11: making it anew"
        rm -rf .venv
    fi
fi
if ! [ -e .venv ]; then
    python=$(find_python)
    say "making .venv; this takes some minutes once"
    if have_uv; then
        uv venv --quiet --python "$python" .venv
    else
        "$python" -m venv .venv
    fi || die "$python could not make .venv; the lines above say why"
fi

: > .venv/.installing
have_uv || .venv/bin/python -m pip install $quiet --upgrade pip
if wants_light_torch && ! light_torch; then
    needs 8 "the usual torch, as the one without CUDA is not to be had from $TORCH_INDEX (see above),"
    say "torch without CUDA is not to be had from $TORCH_INDEX (see above): taking the usual one, 5 GB larger"
elif ! wants_light_torch && [ "$(uname -s)" = Linux ] && ! [ -e .venv/.installed ]; then
    needs 8 "torch with CUDA"
fi
if ! install --constraint constraints.txt; then
    needs 1 "the installation"  # a full disk is no fault of the versions
    say "the exact versions of constraints.txt are not to be had here (see above): taking what pyproject.toml allows"
    install || die "the installation failed (see above): is there a network, and 10 GB of disk? Then run it again"
fi
rm -f .venv/.installing
: > .venv/.installed
if [ -n "${1:-}" ]; then : > ".venv/.$1"; fi
