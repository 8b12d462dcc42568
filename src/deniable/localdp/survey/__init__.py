"""A survey whose answers are randomized by the respondents themselves: its definition, its service, its results."""
