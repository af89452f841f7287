"""Families side by side on one corpus: a loop over fits, the metrics of `collapsium.pipeline.analysis`, one table.

`compare.compare` is the entry point. `options` declares what the user chooses, `grid` makes cells of it, `fits` fits
them, `corpora` has what they are fitted to and scored on, and `rows` measures them.
"""
