"""Append documents or vectors to a corpus, as new shards behind those that there are."""
