"""Commands that read models."""
