"""The public types, as applications write them; mypy is the judge."""
