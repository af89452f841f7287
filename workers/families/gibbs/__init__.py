"""Collapsed Gibbs sampling on a shard."""
