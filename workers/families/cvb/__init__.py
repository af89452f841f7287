"""Collapsed variational inference beside a shard."""
