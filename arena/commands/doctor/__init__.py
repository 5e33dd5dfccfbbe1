"""``arena doctor``: check MPI, cores, memory and disk before a run."""
