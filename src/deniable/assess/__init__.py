"""Numbers about a table or a release: what an intruder can do with it, and what an analyst can."""
