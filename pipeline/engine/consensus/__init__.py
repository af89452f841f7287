"""Consensus of several models: match their topics, and begin a fit from the means of their proportions and topics."""
