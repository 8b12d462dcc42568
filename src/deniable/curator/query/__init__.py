"""Workflows of differentially private questions."""
