"""Models as they are opened and used: their files, the family that reads them, and means of several models.

`Model` in `model` and `load_family` in `registry` are the entry points.
"""
