"""Formats of texts."""
