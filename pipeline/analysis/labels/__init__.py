"""Scores and predictions given labels."""
