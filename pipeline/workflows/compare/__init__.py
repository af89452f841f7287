"""Families side by side on one corpus."""
