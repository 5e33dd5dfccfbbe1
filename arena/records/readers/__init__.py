"""Readers of a run's records: its attempts and series, its league or table, and all of them as columns."""
