"""Show what runs report: terminal, metrics, dashboard, callbacks.

Consumes events, which are dicts of plain values. May import formatting.
"""
