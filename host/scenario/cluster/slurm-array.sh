#!/bin/sh
# Runs one shard of `gpupv scenario run` or `explore` in each task of a job array. docs/CLUSTER.md explains it.
#
#     sbatch slurm-array.sh explore --random --seeds 0..1000000
#     sbatch --array=0-31 slurm-array.sh run /shared/scenarios
#
#SBATCH --job-name=gpupv
#SBATCH --array=0-7
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=1
#SBATCH --mem=256M
#SBATCH --time=01:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=gpupv-%A-%a.log
set -eu

: "${1:?what follows gpupv scenario, such as: explore --random --seeds 0..1000000}"
: "${SLURM_ARRAY_TASK_ID:?submit it as a job array: sbatch --array=0-7 slurm-array.sh $*}"
REPORTS=${REPORTS:-$PWD/reports}
# Shards are numbered from 0, as --array=0-7 numbers tasks.
SHARDS=${SHARDS:-$((SLURM_ARRAY_TASK_MAX + 1))}
mkdir -p "$REPORTS"

status=0
gpupv scenario "$@" --shard "$SLURM_ARRAY_TASK_ID/$SHARDS" --jobs "${SLURM_CPUS_PER_TASK:-1}" --report "$REPORTS/$SLURM_ARRAY_TASK_ID.json" || status=$?

# 1: the shard has done its work and found failures, which it would find again. The merged report has them.
if [ "$status" -le 1 ]; then
    exit 0
fi
# Slurm itself starts tasks again whose node fails or that it preempts. Anything else may be the node's fault: a full
# disk, too little memory. SLURM_RESTART_COUNT counts all restarts, also those by Slurm itself.
echo "shard $SLURM_ARRAY_TASK_ID/$SHARDS ended with status $status on $(hostname)" >&2
if [ "${SLURM_RESTART_COUNT:-0}" -lt "${RETRIES:-2}" ]; then
    scontrol requeue "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"
fi
exit "$status"
