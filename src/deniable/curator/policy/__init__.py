"""Workflows around a policy file: scan, draft, check."""
