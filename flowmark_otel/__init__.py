"""Flowmark for OpenTelemetry: which spans were attempts of one thing."""
