"""Reports that people read: one page a run, which needs nothing but itself."""
