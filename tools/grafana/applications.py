"""Applications: what the Python client says of its own recording and delivery."""

from __future__ import annotations

from typing import Final

from tools.grafana.model import BYTES, PER_SECOND, PLAIN, SECONDS, Panel, Query, Row, gauge, rate

ROW: Final = Row(
    "Applications that record with the Python client",
    (
        Panel(
            "Recorded events by state",
            "Each in one state: stored, duplicate, custody and accepted were acknowledged; queued"
            " and spooled wait; of any other there is no acknowledgement.",
            PLAIN,
            (
                gauge(
                    "flowmark_delivery_events",
                    "application",
                    "{{flowmark_delivery_state}} {{flowmark_delivery_reason}}",
                    by="flowmark_delivery_state, flowmark_delivery_reason",
                ),
            ),
            stacked=True,
        ),
        Panel(
            "Not acknowledged",
            "Of the events recorded since each process began, by instance.",
            PLAIN,
            (
                Query(
                    "sum by (job, instance) (flowmark_delivery_events{"
                    'job=~"$application",flowmark_delivery_state!~'
                    '"stored|duplicate|custody|accepted|queued|spooled"})',
                    "{{job}} {{instance}}",
                ),
            ),
            red_from=1,
        ),
        Panel(
            "Diagnostics",
            "What was reported about recording and delivery, by code.",
            PER_SECOND,
            (
                rate(
                    "flowmark_diagnostics_total",
                    "application",
                    "{{job}} {{flowmark_diagnostic_code}}",
                    "job, flowmark_diagnostic_code",
                ),
            ),
        ),
        Panel(
            "In memory",
            "Events that have no final state; beyond 8,192 the newest are dropped.",
            PLAIN,
            (gauge("flowmark_queue_size", "application", "{{instance}}"),),
        ),
        Panel(
            "Oldest event in a spool of an application",
            "Since it was recorded; 0 where all is delivered.",
            SECONDS,
            (gauge("flowmark_spool_age_seconds", "application", "{{instance}}", "max"),),
            red_from=900,
        ),
        Panel(
            "Spools of applications on disk",
            "What waits, and what was delivered and is not removed yet.",
            BYTES,
            (gauge("flowmark_spool_size_bytes", "application", "{{instance}}"),),
        ),
    ),
)
