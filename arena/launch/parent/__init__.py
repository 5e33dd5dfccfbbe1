"""Forked ranks: one parent process imports what all ranks of a machine need, and each rank is a fork of it.

``client`` is started by mpirun instead of a rank: standard library only. ``handover`` carries its environment,
descriptors and limits to the fork; ``server`` is the parent process; ``started`` starts one for the launcher.
"""
