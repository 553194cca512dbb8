"""The commands of ``flowmark-otel``, one module each (contract, section 7)."""
