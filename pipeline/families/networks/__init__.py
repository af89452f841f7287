"""Networks of Dirichlet and Pitman-Yor vectors for segments and sequences."""
