"""Measure topics by the field's public metrics: coherence, diversity, agreement with labels, likelihood of documents.

`measure.measure` is the entry point for models. `catalogue` has the metrics with their definitions and sources.
`topic_words` and `labelled` compute them from arrays, so that they apply to any library's topics.
"""
