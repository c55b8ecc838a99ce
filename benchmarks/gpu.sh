#!/bin/sh
# One command, at most 8 files of results in the folder given (benchmarks/gpu by default). Parts 1 to 4 took a minute and a half on
# an H200; part 5 has not been timed, and is stopped after 160 seconds.
#   sh benchmarks/gpu.sh [FOLDER]
# DEVICE=cpu SMALL=1 runs all of it at a small size, to try the script where there is no GPU; PATIENCE=10 gives every part ten times
# as long, on a machine that is busy.
# Nothing is downloaded. Flickr8k is trained on where its features are (satlib features flickr8k-soft, below $SATLIB_DATA or data/).
set -u
out=${1:-benchmarks/gpu}
device=${DEVICE:-cuda}
satlib=${SATLIB:-.venv/bin/satlib} python=${PYTHON:-.venv/bin/python}
mkdir -p "$out"
log=$out/log.txt
: > "$log"

if [ "${SMALL:-0}" = 1 ]; then
    sizes="--places 49" batches=8 dims=64,128 large=16 rounds=2
else
    sizes="" batches=64,256 dims=512,2048 large=512,1024 rounds=7
fi

# part NAME SECONDS COMMAND...: a part that fails or takes too long does not keep the others from running.
part() {
    name=$1 limit=$(($2 * ${PATIENCE:-1}))
    shift 2
    start=$(date +%s)
    timeout "$limit" "$@" >> "$log" 2>&1
    status=$?
    echo "$name: status $status, $(($(date +%s) - start)) s" | tee -a "$log"
}

# 1. The step beside the baseline's, float32 and bf16, at the batches that are usual.
part step 110 "$python" benchmarks/bench.py step $sizes --device "$device" --dims "$dims" --batches "$batches" --rounds "$rounds" \
    --precisions float32,bf16 --out "$out/step.json"
# 2. The batches that a large GPU wants.
part large 50 "$python" benchmarks/bench.py step $sizes --device "$device" --dims "${dims%%,*}" --batches "$large" --rounds 3 \
    --precisions bf16 --out "$out/large.json"
# 3. torch.compile; compiling takes its time, so that it gets a part of its own.
part compiled 60 "$python" benchmarks/bench.py step $sizes --device "$device" --dims "${dims%%,*}" --batches "${batches##*,}" \
    --rounds 2 --contestants satlib,compiled --precisions bf16 --out "$out/compiled.json"
# 4. Extraction and beam search.
part rest 45 "$python" benchmarks/bench.py extraction beam --device "$device" --rounds 3 --out "$out/rest.json"
# 5. From features to early stopping, where Flickr8k is there.
if [ -d "${SATLIB_DATA:-data}/features/flickr8k-vgg19" ]; then
    run=$(mktemp -d)
    part flickr8k 120 "$satlib" train flickr8k-soft --device "$device" --out "$run/run"
    part evaluate 40 "$satlib" evaluate "$run/run" --device "$device" --out "$run"
    cp "$run"/evaluation-test*.json "$out/flickr8k.json" 2>> "$log"
    rm -rf "$run"
fi
ls -l "$out"
