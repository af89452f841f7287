"""Formats on disk: corpora and their sources, vocabularies, runs and models. Imports no other package of ours."""
