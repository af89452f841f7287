"""Slow twins of the kernels: the formulas in plain NumPy, a cell at a time, for the tests to compare with."""
