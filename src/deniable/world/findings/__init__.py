"""Findings of the kind that papers report, about the tables of the worlds: for `deniable parity`.

Each file stands by itself, because a world is written with a copy of its own as `findings.py`: functions from a table
to yes, no or a signed effect. What they find is planted, or planted not to be there (see `docs/topics/world.md`).
"""
