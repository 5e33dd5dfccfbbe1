"""What the arena is measured by: policies, programs under mpirun, and the same patterns in plain MPI."""
