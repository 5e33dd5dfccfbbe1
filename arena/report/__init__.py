"""What people look at: the live view, plots, tables, the summary.

Here belongs how a run is shown.
Not here: how it is recorded (records), and commands (commands).
"""
