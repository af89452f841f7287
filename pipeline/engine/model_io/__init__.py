"""Checkpoints, models and summaries of runs in progress."""
