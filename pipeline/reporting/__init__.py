"""Show models to people: HTML reports, plots, exports.

May import analysis and what analysis may import.
"""
