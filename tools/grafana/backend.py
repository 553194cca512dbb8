"""The backend: what became of events and requests, and what it holds."""

from __future__ import annotations

from typing import Final

from tools.grafana.model import BYTES, PER_SECOND, PLAIN, SECONDS, Panel, Query, Row, gauge, rate

ROW: Final = Row(
    "The backend",
    (
        Panel(
            "Events by what became of them",
            "stored: new and durable. duplicate: known already. unacknowledged: the store could not"
            " take it, its sender has it still. conflict, invalid, limit: refused by name.",
            PER_SECOND,
            (
                rate(
                    "flowmark_delivery_events_total",
                    "backend",
                    "{{flowmark_delivery_state}} {{flowmark_delivery_reason}}",
                    "flowmark_delivery_state, flowmark_delivery_reason",
                ),
            ),
            stacked=True,
        ),
        Panel(
            "Requests by how they were answered",
            "Of senders and readers.",
            PER_SECOND,
            (
                rate(
                    "flowmark_server_requests_total",
                    "backend",
                    "{{flowmark_request_kind}} {{flowmark_request_outcome}}",
                    "flowmark_request_kind, flowmark_request_outcome",
                ),
            ),
        ),
        Panel(
            "Until events are durable",
            "From the submission of a request's events until its transaction is on disk.",
            SECONDS,
            tuple(
                Query(
                    f"histogram_quantile({quantile}, sum by (le) (rate("
                    'flowmark_store_write_duration_seconds_bucket{job=~"$backend"}'
                    "[$__rate_interval])))",
                    f"p{quantile * 100:.0f}",
                )
                for quantile in (0.5, 0.99)
            ),
        ),
        Panel(
            "Ready",
            "1 where a read and a small durable write just succeeded.",
            PLAIN,
            (gauge("flowmark_server_ready", "backend", "{{instance}}", "min"),),
            width=6,
        ),
        Panel(
            "Waiting for the store",
            "Events that were received and are not durable yet.",
            PLAIN,
            (gauge("flowmark_queue_size", "backend", "{{instance}}"),),
            width=6,
        ),
        Panel(
            "Bodies in flight",
            "Of requests that are being judged; beyond 64 MiB a process asks senders to wait.",
            BYTES,
            (gauge("flowmark_server_in_flight_bytes", "backend", "{{instance}}"),),
            width=6,
        ),
        Panel(
            "The store on disk",
            "The database and its log.",
            BYTES,
            (gauge("flowmark_store_size_bytes", "backend", "{{instance}}", "max"),),
            width=6,
        ),
    ),
)
