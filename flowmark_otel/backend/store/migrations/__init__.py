"""Alembic scripts of the store's schema; loaded by ``store.migrate`` only."""
