"""Which operations the metrics have counted, so that a later attempt does not count them again.

Revision: 0005, from 0004. Of what a store holds already nothing was counted.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add the column; neither database rewrites the table for it."""
    column = sa.Column("decided", sa.SmallInteger(), server_default="0", nullable=False)
    op.add_column("occurrences", column)
