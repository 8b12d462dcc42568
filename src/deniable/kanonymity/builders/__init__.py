"""Builders make hierarchies: each is a frozen description that turns the distinct values of a column into levels."""
