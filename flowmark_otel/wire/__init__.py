"""What crosses the process border: OTLP bodies, receipts, error statuses, outcomes. Pure."""
