"""The JSON API under ``/api/v1`` (contract, section 5)."""

from flowmark_otel.backend.api.answers import routes
from flowmark_otel.backend.api.endpoints import PREFIX

__all__ = ["PREFIX", "routes"]
