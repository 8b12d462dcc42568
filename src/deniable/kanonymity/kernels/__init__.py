"""Loops over integer arrays, in numpy or compiled once and kept on disk; none knows what a column means."""
