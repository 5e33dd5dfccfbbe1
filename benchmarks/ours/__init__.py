"""Measured programs of the arena: policies, programs under mpirun, and the same patterns in plain MPI."""
