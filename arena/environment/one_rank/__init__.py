"""Several roles in one rank: an environment process in the rank of its worker, or a whole match in one rank."""
