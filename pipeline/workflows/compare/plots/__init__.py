"""Plots of a comparison: classes with a common interface, listed in `registry`; they need matplotlib."""
