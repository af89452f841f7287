"""What lies on disk: corpora, their formats and vocabulary, runs and finished models."""
