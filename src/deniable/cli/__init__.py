"""The doors: commands parse arguments, call the hall, print, and draw progress. They compute nothing."""
