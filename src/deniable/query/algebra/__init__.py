"""The relational algebra of a query: expressions over one row, relations over many, and what is public about both."""
