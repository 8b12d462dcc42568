"""Workflows of k-anonymous releases."""
