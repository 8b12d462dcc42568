"""Differentially private synthetic tables: measure marginals with noise, fit a model to them, draw rows from it."""
