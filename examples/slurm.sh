#!/bin/bash
# Train on 2 machines with 4 GPUs each, under Slurm:  sbatch examples/slurm.sh
# The folder that this is submitted from, with .venv, data/ and runs/ in it, must lie on storage that all machines see.
#SBATCH --job-name=satlib
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1       # one torchrun on each machine; it starts a process for each GPU
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=32
#SBATCH --time=08:00:00
#SBATCH --signal=TERM@120         # two minutes before time is up: save a checkpoint and stop
#SBATCH --requeue
#SBATCH --open-mode=append

source .venv/bin/activate
export OMP_NUM_THREADS=8
export HEAD="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)"

# Annotation vectors, once; where they are there already this takes a moment.
srun bash -c 'torchrun --nnodes "$SLURM_NNODES" --nproc-per-node 4 --rdzv-backend c10d --rdzv-endpoint "$HEAD:29500" \
  --rdzv-id "$SLURM_JOB_ID-features" -m satlib features coco-soft'

# Batches of 512 are shared out, 64 rows to each of 8 processes.
srun bash -c 'torchrun --nnodes "$SLURM_NNODES" --nproc-per-node 4 --rdzv-backend c10d --rdzv-endpoint "$HEAD:29500" \
  --rdzv-id "$SLURM_JOB_ID-train" --max-restarts 3 -m satlib train coco-soft --set training.batch_size=512 --set training.warmup=500'

# Stopped because time was up, or by a machine that failed: queue again, and go on from the checkpoint.
status=$?
if [ "$status" -ne 0 ] && [ "${SLURM_RESTART_COUNT:-0}" -lt 10 ]; then
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
