"""Differentially private SQL: a question is compiled to a priced plan without sight of data, then executed once."""
