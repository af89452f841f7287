"""The benchmark of hosts: one fit on simulated hosts of one machine, by number of hosts and speed of their links."""
