"""Plots of a comparison, where matplotlib is installed: each a small class of one interface; `registry` lists them."""
