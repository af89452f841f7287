"""Run tasks: serially, in threads, or on a Dask cluster.

`open_executor` in `open` is the entry point. May import monitoring and formatting.
"""
