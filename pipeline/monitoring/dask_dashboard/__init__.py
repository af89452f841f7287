"""Pages of runs in a Dask scheduler's dashboard."""
