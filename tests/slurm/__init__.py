"""Tests under a real SLURM, started for them."""
