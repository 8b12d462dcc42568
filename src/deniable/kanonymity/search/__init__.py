"""Searches for a release: optimal with proof, anytime with a certified gap, local recoding, microaggregation."""
