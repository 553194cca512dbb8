"""Benchmarks: ratios within one run, as a table and as JSON (``make bench``). Not collected."""
