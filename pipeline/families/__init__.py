"""Driver halves of the model families.

`load_family` in `registry` is the entry point. May import executors, monitoring and formatting.
"""
