#!/bin/bash
#SBATCH --job-name=llama-run
#SBATCH --comment=trimtab:0123456789ab:1
#SBATCH --partition=gpu
#SBATCH --account=ml
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:h100:2
#SBATCH --cpus-per-task=16
#SBATCH --mem=122880M
#SBATCH --time=720
#SBATCH --chdir=/srv/run
#SBATCH --output=/srv/run/%j.log
#SBATCH --export=NONE
#SBATCH --no-requeue
set -euo pipefail
export TRIMTAB_DATA_PARALLEL=1
export TRIMTAB_DATA_PATH=/srv/data
export TRIMTAB_GLOBAL_BATCH=64
export TRIMTAB_GPUS=2
export TRIMTAB_GPUS_PER_NODE=2
export TRIMTAB_GRADIENT_ACCUMULATION=32
export TRIMTAB_MICRO_BATCH=2
export TRIMTAB_NODES=1
export TRIMTAB_PIPELINE_PARALLEL=2
export TRIMTAB_RECOMPUTE=none
export TRIMTAB_SEQUENCE_LENGTH=2048
export TRIMTAB_SHARDING=none
export TRIMTAB_TENSOR_PARALLEL=1
export WANDB_MODE='off line'
MASTER_ADDR="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)"
MASTER_PORT="$((20000 + SLURM_JOB_ID % 20000))"
WORLD_SIZE=2
export MASTER_ADDR MASTER_PORT WORLD_SIZE
srun --export=ALL --kill-on-bad-exit=1 torchrun --nnodes=1 --nproc-per-node=2 --standalone train.py --batch 2 --tp=1 'it'"'"'s $HOME; `id`'
