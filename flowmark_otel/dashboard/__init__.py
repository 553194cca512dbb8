"""The dashboard: pages over what the reader answers. It sees views, never the store."""

from flowmark_otel.dashboard.app import routes
from flowmark_otel.dashboard.overall import About

__all__ = ["About", "routes"]
