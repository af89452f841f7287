"""Public measures of topics: coherence in windows, diversity, agreement with labels, and likelihoods of documents."""
