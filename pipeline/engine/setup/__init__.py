"""From the options of a fit to a problem that the loop solves."""
