"""Mean-field variational inference on a shard."""
