"""Checks of a policy file's tree against the grammar, with every mistake and its place."""
