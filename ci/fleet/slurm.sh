#!/bin/bash
# A cluster of Ray as one job of Slurm, for one long campaign (docs/fleet.md):
#   sbatch --nodes=4 --time=08:00:00 ci/fleet/slurm.sh --budget 360000cpu --seed 1 --db postgresql://USER@HOST/NAME
# The words after the script are those of `ddefuzz run`. All nodes need the same environment, at the same path.
#SBATCH --job-name=ddefuzz
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=32
#SBATCH --exclusive
#SBATCH --signal=B:TERM@180
set -euo pipefail

read -r head < <(scontrol show hostnames "$SLURM_JOB_NODELIST") # `| head` may end scontrol by SIGPIPE, and pipefail then the job
address=$(srun --nodes=1 --ntasks=1 --nodelist="$head" hostname --ip-address | awk '{print $1}'):$((20000 + SLURM_JOB_ID % 20000))

srun --nodes=1 --ntasks=1 --nodelist="$head" --overlap \
    ray start --head --block --node-ip-address="${address%:*}" --port="${address#*:}" --num-cpus="$SLURM_CPUS_PER_TASK" &
until ray health-check --address "$address" > /dev/null 2>&1; do sleep 2; done
if [ "$SLURM_NNODES" -gt 1 ]; then
    srun --nodes=$((SLURM_NNODES - 1)) --ntasks=$((SLURM_NNODES - 1)) --exclude="$head" --overlap \
        ray start --block --address="$address" --num-cpus="$SLURM_CPUS_PER_TASK" &
fi

# Three minutes before the job's time ends, the campaign gets SIGTERM, and saves what it has. `--resume` continues it.
# SIGINT would be ignored: a shell starts what is in its background so.
ddefuzz run --engine ray --address "$address" "$@" &
campaign=$!
trap 'kill -TERM "$campaign"' INT TERM
code=0
wait "$campaign" || code=$?
if kill -0 "$campaign" 2> /dev/null; then # it was the signal that ended the wait
    code=0
    wait "$campaign" || code=$?
fi
exit "$code" # Slurm ends what else the job has started
