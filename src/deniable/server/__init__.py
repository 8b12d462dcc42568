"""The servers: what listens on a port. They speak to the hall and to nobody below it."""
