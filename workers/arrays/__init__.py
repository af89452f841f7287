"""Arrays that tasks exchange: states, deltas, spill files, buffers; random streams and stable hashes."""
