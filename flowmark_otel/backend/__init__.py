"""The accepting backend: judge, store, read (D5)."""
