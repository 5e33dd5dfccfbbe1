"""Games and their requests: turns, retries, places, time limits."""
