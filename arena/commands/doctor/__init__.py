"""``arena doctor``: says before a run what of MPI, the cores, the memory and the disk would get in its way."""
