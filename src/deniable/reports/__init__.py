"""Ink: pages and plots drawn from numbers that others computed. This room computes nothing and reads no table."""
