"""Collapsed Gibbs sampling of flat topics."""
