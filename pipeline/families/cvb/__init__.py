"""Collapsed variational inference for LDA and the hierarchical Dirichlet process."""
