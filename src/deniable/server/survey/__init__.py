"""The survey server: a page that randomizes in the browser, and a desk that takes only what was randomized."""
