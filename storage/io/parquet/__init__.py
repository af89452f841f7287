"""Parquet files that anyone may have written."""
