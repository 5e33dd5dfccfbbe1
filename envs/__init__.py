"""Environments: the common interface that the engine steps, adapters of other libraries, and built-in games."""
