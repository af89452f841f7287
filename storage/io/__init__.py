"""Folders, atomic writes, retries, locks, records, Zarr arrays.

May import units and errors.
"""
