"""Attacks: what an intruder does, measured. They take tables and callables, and import no protection."""
