"""Locks of runs: one process works on a run at a time."""
