"""Slow twins of the kernels: the formulas in plain NumPy, one cell at a time, with which the tests compare the
kernels."""
