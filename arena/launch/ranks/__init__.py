"""A rank from its start to its end: what all ranks agree on, the roles of each, and the ranks that are left."""
