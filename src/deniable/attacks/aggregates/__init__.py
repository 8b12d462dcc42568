"""Attacks on aggregates: answered questions, published statistics and maps, from which single people are computed."""
