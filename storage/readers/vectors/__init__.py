"""Formats of vectors."""
