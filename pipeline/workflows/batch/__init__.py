"""Scheduled jobs: ingest or append, fit, score, publish."""
