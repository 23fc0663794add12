#!/bin/sh
# Explores a range of seeds with a job array: each task runs one shard and leaves one report.
# README.md beside this file says how to change the numbers and how to merge.
#
#     sbatch slurm-array.sh
#
#SBATCH --job-name=gpupv-explore
#SBATCH --array=0-7
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=1
#SBATCH --mem=256M
#SBATCH --time=01:00:00
#SBATCH --output=gpupv-explore-%A-%a.log
set -eu

SEEDS="${SEEDS:-0..1000000}"
REPORTS="${REPORTS:-$PWD/reports}"
mkdir -p "$REPORTS"

# Shards are numbered from 0, as --array=0-7 numbers tasks.
gpupv scenario explore --random --seeds "$SEEDS" --shard "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT" --report "$REPORTS/$SLURM_ARRAY_TASK_ID.json"
