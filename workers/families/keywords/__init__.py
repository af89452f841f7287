"""Topics with keywords, on a shard."""
