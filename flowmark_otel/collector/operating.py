"""What a collector says of itself on its telemetry address.

``/metrics``, ``/healthz``, ``/readyz`` and ``/status``. The address has no key: keep it where
operators are.
"""

from __future__ import annotations

from flowmark_otel.collector import metrics, status
from flowmark_otel.collector.meter import Meter
from flowmark_otel.listen.admission import Admission
from flowmark_otel.listen.health import Ready
from flowmark_otel.listen.prometheus import CONTENT_TYPE
from flowmark_otel.listen.telemetry import Telemetry


def telemetry_of(
    address: str, meter: Meter, admission: Admission, ready: Ready | None = None
) -> Telemetry:
    """The server of the telemetry address. ``ready``: asked instead of the nodes."""
    asked = ready or meter.ready

    def page(is_ready: bool) -> tuple[bytes, str]:  # noqa: FBT001  as Page has it
        return metrics.page_of(meter, in_flight=admission.held, ready=is_ready), CONTENT_TYPE

    return Telemetry(address, page, asked, [status.route(meter, asked)])
