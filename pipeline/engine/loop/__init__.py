"""Iterations of a fit, in the batch and the stochastic schedule."""
