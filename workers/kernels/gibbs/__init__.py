"""Kernels of collapsed Gibbs sampling."""
