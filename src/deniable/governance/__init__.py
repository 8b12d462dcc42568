"""Who may do what: roles, grants and tokens, requests and their decisions, withdrawals. Decided without data.

The facts are entries of a ledger; this package folds them into the present state and decides. It knows entries by
their shape only and imports no other capability."""
