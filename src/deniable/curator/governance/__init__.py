"""Workflows of stewards: tokens, requests, withdrawals, reports."""
