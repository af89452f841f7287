"""Collapsed Gibbs sampling beside a shard."""
