"""The command line: commands parse arguments, call the curator, print, and show progress. They compute nothing."""
