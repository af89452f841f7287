"""Make corpora: ingest, append, split, flatten and simulate.

May import families, executors, monitoring and formatting.
"""
