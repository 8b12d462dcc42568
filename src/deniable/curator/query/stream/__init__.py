"""Streams: from a declared schedule of questions to numbers that are published every period."""
