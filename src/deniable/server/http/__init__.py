"""HTTP: the API and web pages for analysts and for the steward. They call the service and nothing below it."""
