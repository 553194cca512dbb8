"""One module at a time, without a network."""
