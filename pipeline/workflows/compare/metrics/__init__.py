"""Metrics of a comparison's cells: each a small class of one interface; `registry` lists them."""
