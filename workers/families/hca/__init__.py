"""Gaussian trees on a shard."""
