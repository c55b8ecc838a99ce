#!/bin/sh
# One command, under 9 minutes on one H200-class GPU, at most 8 files of results in the folder given (benchmarks/gpu by default):
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
    sizes="--places 49" batches=8 dims=64,128 large=16 rounds=2 images=40 epoch=32
else
    sizes="" batches=64,256 dims=512,2048 large=512,1024 rounds=7 images=82783 epoch=1024
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

# 1. The fast loop equals the plain one, on this device too: how far apart they are stands in the file.
part equal 45 "$python" -m pytest -q -k "real_widths or bf16" --junitxml "$out/equal.xml" tests/test_fast.py
# 2. The step beside the baseline's, float32 and bf16, at the batches that are usual.
part step 110 "$python" -m benchmarks.bench step $sizes --device "$device" --dims "$dims" --batches "$batches" --rounds "$rounds" \
    --contestants baseline,plain,fast --precisions float32,bf16 --out "$out/step.json"
# 3. The batches that a large GPU wants.
part large 50 "$python" -m benchmarks.bench step $sizes --device "$device" --dims "${dims%%,*}" --batches "$large" --rounds 3 \
    --contestants baseline,plain,fast --precisions bf16 --out "$out/large.json"
# 4. torch.compile in place of the loop by hand; compiling takes its time, so that it gets a part of its own.
part compiled 60 "$python" -m benchmarks.bench step $sizes --device "$device" --dims "${dims%%,*}" --batches "${batches##*,}" --rounds 2 \
    --contestants fast,compiled --precisions bf16 --out "$out/compiled.json"
# 5. An epoch of COCO's size.
part epoch 60 "$python" -m benchmarks.bench epoch $sizes --device "$device" --dims "${dims%%,*}" --batches "$epoch" --images "$images" \
    --contestants plain,fast --precisions bf16 --out "$out/epoch.json"
# 6. Extraction, beam search, loader.
part rest 45 "$python" -m benchmarks.bench extraction beam loader --device "$device" --rounds 3 --out "$out/rest.json"
# 7. From features to early stopping, where Flickr8k is there.
if [ -d "${SATLIB_DATA:-data}/features/flickr8k-vgg19" ]; then
    run=$(mktemp -d)
    part flickr8k 120 "$satlib" train flickr8k-soft --device "$device" --out "$run/run"
    part evaluate 40 "$satlib" evaluate "$run/run" --device "$device" --out "$run"
    cp "$run"/evaluation-test*.json "$out/flickr8k.json" 2>> "$log"
    rm -rf "$run"
fi
ls -l "$out"
