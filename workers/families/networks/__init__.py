"""Networks of Dirichlet and Pitman-Yor vectors beside a shard."""
