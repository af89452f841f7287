"""The bench of hosts: the same fit on hosts of one machine, by number of hosts and speed of their links."""
