"""Techniques beyond one SELECT: top k, watches, automatic bounds, sample and aggregate, hierarchies and margins."""
