"""Environments: the one contract that the engine steps, adapters of other libraries to it, and games of our own."""
