"""SQL text in and SQL text out: the only place that knows a parser. User text never reaches an engine."""
