"""Numbers: a value on a public scale of whole steps is randomized; means and distributions are recovered."""
