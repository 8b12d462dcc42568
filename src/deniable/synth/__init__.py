"""Differentially private synthetic tables: measure marginals with noise, fit a model to them, draw rows from it.

`describe` is the way in: it encodes a table (`domain`, `encode`, `bins`, `text_shapes`), measures it within a budget by
one of the `methods` (`marginal`, `measure`, `select`), and keeps a `model` of consistent estimates (`estimate`).
Everything after works on the model alone: `generate`, `constraints`, `inspect`. `linked` does the same for
people with several rows each."""
