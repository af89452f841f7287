"""Readers of dense vectors."""
