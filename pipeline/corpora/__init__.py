"""Make corpora: ingest, append, split, explode and simulate.

May import families, executors, monitoring and formatting.
"""
