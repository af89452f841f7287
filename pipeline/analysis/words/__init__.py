"""The words that describe a topic: their ranking by probability, FREX, lift or relevance."""
