"""Workflows of synthetic data."""
