"""Who may do what: roles, grants and tokens, requests and their decisions, withdrawals. Decided without data.

The facts are acts that stand in a ledger; this room folds them into the state of now and decides. It knows acts by
their shape only and no other wing.
"""
