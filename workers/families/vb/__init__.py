"""Mean-field variational inference beside a shard."""
