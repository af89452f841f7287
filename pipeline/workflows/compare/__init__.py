"""Families side by side on one corpus: a loop over fits, the metrics of `collapsium.pipeline.analysis`, one table.

`options` declares what the user chooses and makes cells of it; `compare` fits them in a loop, and makes the table and
the plot.
"""
