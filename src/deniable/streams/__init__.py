"""Statistics over time: one budget for all periods together, and error that grows with the logarithm of their number.

`workload` says which totals matter, `factorization` which combinations of periods are measured for them and how far
one person moves those, `mechanism` how they are measured on integers and what follows from them.
"""
