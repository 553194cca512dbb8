"""Tests; each docstring is the claim the test proves."""
