"""Frequency protocols: how often each answer of a domain, or each string, was given."""
