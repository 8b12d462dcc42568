"""HTTP: the API for analysts and for the steward, and the applications of both ports. They call the service."""
