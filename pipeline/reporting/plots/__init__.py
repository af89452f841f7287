"""Pictures, where matplotlib is installed."""
