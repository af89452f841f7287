"""Kernels of metrics: co-occurrence in windows of texts, and likelihoods of documents."""
