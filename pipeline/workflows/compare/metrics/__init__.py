"""Metrics of a comparison's cells: classes with a common interface, listed in `registry`."""
