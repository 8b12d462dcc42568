"""Compiled kernels: loops over integer arrays, compiled once and kept on disk; none knows what a column means."""
