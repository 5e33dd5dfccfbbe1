"""Forked ranks: one parent process imports what all ranks of a machine need, and each rank is a fork of it.

``client`` is what mpirun starts in place of a rank: standard library only. ``handover`` carries its environment,
descriptors and limits to the fork; ``server`` is the parent process; ``started`` is how the launcher starts one.
"""
