"""The collector, node by node."""

from __future__ import annotations

from typing import Final

from tools.grafana.model import BYTES, PER_SECOND, PLAIN, SECONDS, Panel, Query, Row, gauge, rate

_NODE: Final = "{{flowmark_node}}"


def _counted(metric: str, legend: str = _NODE, by: str = "flowmark_node") -> Query:
    return rate(metric, "collector", legend, by)


ROW: Final = Row(
    "The collector",
    (
        Panel(
            "Items that came to a node",
            "Spans, log records, events or letters, as the node takes them.",
            PER_SECOND,
            (_counted("flowmark_collector_received_total"),),
        ),
        Panel(
            "Items that who comes next has taken",
            "Of an exporter: what the backend, or a file, has.",
            PER_SECOND,
            (_counted("flowmark_collector_forwarded_total"),),
        ),
        Panel(
            "Messages by how they ended for their sender",
            "failed: the sender was told so and has them still.",
            PER_SECOND,
            (
                _counted(
                    "flowmark_collector_pipeline_messages_total",
                    "{{flowmark_pipeline}} {{flowmark_pipeline_outcome}}",
                    "flowmark_pipeline, flowmark_pipeline_outcome",
                ),
            ),
        ),
        Panel(
            "Refused, by reason",
            "Items that did not get through a node; what became of them is its on_error.",
            PER_SECOND,
            (
                _counted(
                    "flowmark_collector_refused_total",
                    "{{flowmark_node}} {{flowmark_delivery_reason}}",
                    "flowmark_node, flowmark_delivery_reason",
                ),
            ),
        ),
        Panel(
            "Dead letters and drops",
            "Dead letters are kept, and can be sent again by `flowmark-otel replay`. What"
            " on_error: continue dropped is lost.",
            PER_SECOND,
            (
                _counted("flowmark_collector_dead_letters_total", "{{flowmark_node}} letters"),
                _counted("flowmark_collector_dropped_total", "{{flowmark_node}} dropped"),
            ),
        ),
        Panel(
            "Tries after the first",
            "The collector's own, of messages. They are no attempts of applications.",
            PER_SECOND,
            (_counted("flowmark_collector_retries_total"),),
        ),
        Panel(
            "Oldest event in a spool",
            "Since it was written; 0 where all is delivered.",
            SECONDS,
            (
                gauge(
                    "flowmark_collector_spool_age_seconds",
                    "collector",
                    "{{instance}} {{flowmark_node}}",
                    "max",
                    "instance, flowmark_node",
                ),
            ),
            red_from=900,
        ),
        Panel(
            "Spools on disk",
            "What is in custody, and what was delivered and is not removed yet.",
            BYTES,
            (
                gauge(
                    "flowmark_collector_spool_size_bytes",
                    "collector",
                    "{{instance}} {{flowmark_node}}",
                    by="instance, flowmark_node",
                ),
            ),
        ),
        Panel(
            "Nodes that take messages",
            "0 where a node refuses, for want of a backend or with its failure budget spent.",
            PLAIN,
            (
                gauge(
                    "flowmark_collector_node_ready",
                    "collector",
                    "{{instance}} {{flowmark_node}}",
                    "min",
                    "instance, flowmark_node",
                ),
            ),
        ),
    ),
)
