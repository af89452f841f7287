"""Definitions of held-out scores."""
