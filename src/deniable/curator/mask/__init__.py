"""Workflows of masked releases and their keys."""
