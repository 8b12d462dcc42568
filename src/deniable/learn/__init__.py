"""Learning: models of a declared target, trained on people's rows with noise, and kept as data."""
