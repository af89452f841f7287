"""What runs beside a shard: sweeps, their compiled kernels, deltas and random streams."""
