"""Other libraries and classifiers, for comparisons."""
