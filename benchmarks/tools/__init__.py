"""Shared parts of the benchmarks: measuring, running, observing processes, and injecting faults."""
