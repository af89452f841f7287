"""Trees of topics beside a shard."""
