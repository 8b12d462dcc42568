"""The survey server: a page that randomizes in the browser, and a service that takes only what was randomized."""
