"""Kernels of collapsed variational inference."""
