"""Curves of a run for experiment trackers (wandb, MLflow, trackio): read from the records, sent by their own clients.

Not here: TensorBoard's event files (records), which the root writes itself.
"""
