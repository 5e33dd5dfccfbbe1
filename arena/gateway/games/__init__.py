"""Games and their requests: order, retries, places, time limits."""
