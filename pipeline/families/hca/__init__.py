"""Hierarchical component analysis: Gaussian trees on vectors."""
