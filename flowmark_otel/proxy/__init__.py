"""A same-origin proxy for web pages: OTLP from the page to the backend, with the server's key.

What comes through it has origin ``server``. Therefore a visitor of the page can write whatever
the list of workflow names allows, and nothing else (contract, section 4, "Origin"; A20, A24).
"""

from flowmark_otel.proxy.asgi import AsgiProxy
from flowmark_otel.proxy.wsgi import WsgiProxy

__all__ = ["AsgiProxy", "WsgiProxy"]
