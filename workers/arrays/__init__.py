"""Arrays that tasks exchange: deltas, buffers, spill files, random streams."""
