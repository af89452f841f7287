"""Commands that make runs."""
