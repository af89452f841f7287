"""Commands that make corpora."""
