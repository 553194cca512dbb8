"""Browser keys: from which pages they send, and how much (A20).

Revision: 0002, from 0001.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Make the table; no key that exists is of this kind."""
    op.create_table(
        "browser_keys",
        sa.Column("key_id", sa.String(), nullable=False),
        sa.Column("pages", sa.String(), nullable=False),
        sa.Column("events_per_minute", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("key_id"),
        sa.ForeignKeyConstraint(["key_id"], ["keys.id"]),
    )
