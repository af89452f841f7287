"""Records of runs, checkpoints, models, versions and comparisons.

May import readers, corpus and io.
"""
