#!/bin/sh
# One report of the whole, from the reports of an array's tasks.
#
#     sbatch --dependency=afterany:ARRAY_JOB_ID slurm-merge.sh
#
#SBATCH --job-name=gpupv-merge
#SBATCH --ntasks=1
#SBATCH --time=00:05:00
#SBATCH --output=gpupv-merge-%j.log
set -eu

REPORTS="${REPORTS:-$PWD/reports}"

gpupv scenario merge "$REPORTS"/*.json
