"""Gaussian trees beside a shard."""
