"""Formats of counted words."""
