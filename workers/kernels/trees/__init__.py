"""Kernels of trees of topics and of Gaussians."""
