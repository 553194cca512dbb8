"""Reading: questions about one project → views (contract, section 5)."""

from flowmark_otel.backend.read.errors import BadParameter, NotFound
from flowmark_otel.backend.read.filters import RunFilters
from flowmark_otel.backend.read.news import MOST as MOST_NEWS
from flowmark_otel.backend.read.problems import EvidenceFilters
from flowmark_otel.backend.read.reader import (
    DEFAULT_BUCKETS,
    DEFAULT_LIMIT,
    MAX_BUCKETS,
    MAX_LIMIT,
    Readable,
    Reader,
)

__all__ = [
    "DEFAULT_BUCKETS",
    "DEFAULT_LIMIT",
    "MAX_BUCKETS",
    "MAX_LIMIT",
    "MOST_NEWS",
    "BadParameter",
    "EvidenceFilters",
    "NotFound",
    "Readable",
    "Reader",
    "RunFilters",
]
