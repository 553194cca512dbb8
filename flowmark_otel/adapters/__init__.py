"""Adapters: what retry libraries do on their own is recorded as attempts, without code (E3).

One file for each library. Under ``opentelemetry-instrument`` they are found by name, and active
where ``FLOWMARK_*`` says where to send; elsewhere call ``instrument()`` of one, which needs the
package ``opentelemetry-instrumentation``. ``docs/adapters.md`` has the table.
"""

from flowmark_otel.adapters.naming import operation_name

__all__ = ["operation_name"]
