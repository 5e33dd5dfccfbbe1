"""Presentation of runs: the live view, plots, tables, the summary.

Here belongs the presentation of a run.
Not here: its records (records), and commands (commands).
"""
