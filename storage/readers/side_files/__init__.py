"""Readers of side files, which have labels and covariates of documents."""
