"""What differs between copies of an environment: their numbers, and resources that each has for itself."""
