"""Kernels of mean-field variational inference."""
