"""The record of what was spent: events are written before anything runs, and a refusal changes nothing."""
