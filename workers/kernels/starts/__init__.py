"""Kernels of starts: word vectors, clusters of documents, and mixtures of one topic a document."""
