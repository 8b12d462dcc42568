"""The servers: what listens on a port. They call the curator and nothing below it."""
