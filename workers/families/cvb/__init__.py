"""Collapsed variational inference on a shard."""
