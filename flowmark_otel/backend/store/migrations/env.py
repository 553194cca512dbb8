"""Alembic's entry: runs on the connection it is handed, in that connection's transaction."""

from __future__ import annotations

from alembic import context

from flowmark_otel.backend.store.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
)
context.run_migrations()
