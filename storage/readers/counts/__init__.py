"""Readers of counted words."""
