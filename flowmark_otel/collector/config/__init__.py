"""The configuration file of the collector, in the grammar of the OpenTelemetry Collector."""
