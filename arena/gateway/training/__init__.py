"""Games outside that are learned from: what an environment process is where nobody here steps the environment."""
