"""Tests of the kernels of starts."""
