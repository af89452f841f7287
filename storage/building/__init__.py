"""Build corpora: from sources, and from other corpora.

May import readers, corpus and io.
"""
