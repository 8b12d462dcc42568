"""Networks: statistics of a table of edges, and networks made from noisy ones, for one edge or one node as the unit.

`network.py` is the graph and what is counted in it, `statistics.py` how far one unit moves each count and with which
noise it is released, `synthesis.py` what is made of noisy counts. No module here reads a table of the policy."""
