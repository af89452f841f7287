"""Families side by side on one corpus: an experiment grid, with pluggable metrics, plots and baselines.

`compare.compare` is the entry point. `options` declares what is asked for; `grid` makes cells of it, `fits` fits them,
`targets` has the corpora that are scored; `runner` puts them together. A metric is a class in `metrics/`, a plot a
class in `plots/`, and other libraries and classifiers are classes in `baselines/`.
"""
