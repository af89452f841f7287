"""Families side by side on one corpus: a loop over fits, the metrics of `collapsium.pipeline.analysis`, one table.

`compare.compare` is the entry point. `options` declares what the user chooses and makes cells of it, `fits` fits them,
and `table` measures them.
"""
