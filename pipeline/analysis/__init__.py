"""Compute what people ask of fitted models: topics, scores, proportions, predictions.

May import engine, corpora, families, executors, monitoring and formatting.
"""
