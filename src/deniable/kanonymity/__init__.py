"""k-anonymity and its kin: hierarchies, privacy models, quality measures, searches that prove what they found.

Integers inside, labels at the boundary: columns are coded once against their hierarchies, equal rows are collapsed to
distinct tuples with counts, and everything that follows (searching, measuring, checking) works on those.
"""
