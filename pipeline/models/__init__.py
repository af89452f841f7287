"""Models as they are opened and used: what is stored, the family that reads it, and means of several models.

`Model` in `model` and `load_family` in `registry` are the entry points.
"""
