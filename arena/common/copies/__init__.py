"""Differences between the copies of an environment: numbers, ports and folders."""
