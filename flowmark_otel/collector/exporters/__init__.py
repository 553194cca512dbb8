"""Where payloads leave the collector: each exporter is an ``Element``."""
