"""Engines over PostgreSQL: rows stay in the database, and what comes out is what a statement of ours gives.

A source is `postgresql://user@host/database#schema.table`: a table, a view, or a partitioned table. Passwords are not
in it; they come from PGPASSFILE, PGPASSWORD or a service file. Everything else (files, frames, noisy answers) is held
by an embedded engine beside it, and a statement that reads no table of the database runs there.

Every statement runs in a read-only transaction over one snapshot, with a time limit, in UTC, with texts compared byte
by byte. Nothing is created in the database: sources are shown by common table expressions in front of the statement,
with names, types and restrictions as the policy has them. What is shown of a value that has no counterpart (NaN,
infinite dates, numbers that a double cannot hold) is null.
"""
