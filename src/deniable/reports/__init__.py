"""Rendering: pages and plots of numbers that others computed. This package computes nothing and reads no table."""
