"""Kernels of networks of Dirichlet and Pitman-Yor vectors."""
