"""Trees of topics on a shard."""
