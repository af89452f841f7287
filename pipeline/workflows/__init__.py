"""Many fits as one piece of work: scheduled jobs, comparisons, the demo.

May import reporting and what reporting may import.
"""
