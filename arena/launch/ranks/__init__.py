"""A rank in all rounds of a run: the agreement of all ranks on the run, their roles, and recovery from dead ones."""
