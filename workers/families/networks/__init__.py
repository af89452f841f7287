"""Networks of Dirichlet and Pitman-Yor vectors on a shard."""
