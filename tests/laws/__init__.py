"""Properties that hold for every input, by Hypothesis."""
