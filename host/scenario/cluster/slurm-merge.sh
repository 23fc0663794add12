#!/bin/sh
# One report of the whole, from the reports of an array's tasks. Its arguments are those of `gpupv scenario merge`.
#
#     sbatch --dependency=afterany:ARRAY_JOB_ID slurm-merge.sh --junit results.xml
#
#SBATCH --job-name=gpupv-merge
#SBATCH --ntasks=1
#SBATCH --time=00:05:00
#SBATCH --requeue
#SBATCH --output=gpupv-merge-%j.log
set -eu

gpupv scenario merge "${REPORTS:-$PWD/reports}" "$@"
