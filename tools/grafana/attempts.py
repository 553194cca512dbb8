"""Attempts and operations: of the backend alone, since applications count the same ones."""

from __future__ import annotations

from typing import Final

from tools.grafana.model import PER_SECOND, PLAIN, RATIO, SECONDS, Panel, Query, Row

_OF: Final = (
    'job=~"$backend",flowmark_workflow_name=~"$workflow",flowmark_operation_name=~"$operation"'
)
_BY: Final = "flowmark_workflow_name, flowmark_operation_name"
_NAME: Final = "{{flowmark_operation_name}} of {{flowmark_workflow_name}}"


def _rise(metric: str, more: str = "", by: str = "", over: str = "$__range") -> str:
    """How much a counter of the backend rose over a time."""
    rises = f"increase({metric}{{{_OF}{more}}}[{over}])"
    return f"sum by ({by}) ({rises})" if by else f"sum({rises})"


def _rate(metric: str, more: str = "", by: str = "") -> str:
    """The same for each second of a moment's time."""
    return _rise(metric, more, by, "$__rate_interval").replace("increase(", "rate(", 1)


_FAILED_ATTEMPTS: Final = ',flowmark_attempt_status="failed"'
_FAILED_OPERATIONS: Final = ',flowmark_verdict="failed"'
_ATTEMPTS: Final = "flowmark_attempts_total"
_OPERATIONS: Final = "flowmark_operations_total"
_LOST: Final = "flowmark_operation_time_lost_seconds_total"

_OPERATIONS_FAILED_SAYS: Final = (
    "Of the operations that ended, those that failed after all their attempts. What has no end yet"
    " is in neither number."
)
_ATTEMPTS_FAILED_SAYS: Final = (
    "Of the attempts that ended, those that failed, whether another attempt followed or not."
)


def _share(metric: str, failed: str) -> str:
    """The share of what ended that failed."""
    return f"({_rise(metric, failed)} or vector(0)) / {_rise(metric)}"


ROW: Final = Row(
    "Attempts and operations, as the backend has stored them",
    (
        Panel(
            "Operations that failed in the end",
            _OPERATIONS_FAILED_SAYS,
            RATIO,
            (Query(_share(_OPERATIONS, _FAILED_OPERATIONS)),),
            kind="stat",
            width=6,
            red_from=0.05,
        ),
        Panel(
            "Attempts that failed",
            _ATTEMPTS_FAILED_SAYS,
            RATIO,
            (Query(_share(_ATTEMPTS, _FAILED_ATTEMPTS)),),
            kind="stat",
            width=6,
        ),
        Panel(
            "Attempts for each operation",
            "1 is no retry at all. Operations without an attempt count among the operations.",
            PLAIN,
            (Query(f"{_rise(_ATTEMPTS)} / {_rise(_OPERATIONS)}"),),
            kind="stat",
            width=6,
            red_from=3,
        ),
        Panel(
            "Time lost to retries",
            "Failed attempts that were tried again, and the time between consecutive attempts,"
            " added up over all operations of the range.",
            SECONDS,
            (Query(_rise(_LOST)),),
            kind="stat",
            width=6,
        ),
        Panel(
            "Both error rates",
            f"{_ATTEMPTS_FAILED_SAYS} {_OPERATIONS_FAILED_SAYS} Where the first rises and the"
            " second does not, retries hide it from users, and cost their time.",
            RATIO,
            (
                Query(
                    f"({_rate(_ATTEMPTS, _FAILED_ATTEMPTS)} or vector(0)) / {_rate(_ATTEMPTS)}",
                    "attempts that failed",
                ),
                Query(
                    f"({_rate(_OPERATIONS, _FAILED_OPERATIONS)} or vector(0))"
                    f" / {_rate(_OPERATIONS)}",
                    "operations that failed in the end",
                ),
            ),
        ),
        Panel(
            "Attempts that ended",
            "Each counted once, when it was stored first. What is sent again counts nowhere.",
            PER_SECOND,
            (Query(_rate(_ATTEMPTS, by="flowmark_attempt_status"), "{{flowmark_attempt_status}}"),),
            stacked=True,
        ),
        Panel(
            "Operations that ended",
            "first_try: the first attempt completed. after_retry: a later one did. failed: the last"
            " one failed, at its limit or with none after it for the time of --failed-after.",
            PER_SECOND,
            (Query(_rate(_OPERATIONS, by="flowmark_verdict"), "{{flowmark_verdict}}"),),
            stacked=True,
        ),
        Panel(
            "Attempts for each operation, by operation",
            "The ten highest. A line that rises is amplification: the other side bears that many"
            " times the load.",
            PLAIN,
            (Query(f"topk(10, {_rate(_ATTEMPTS, by=_BY)} / {_rate(_OPERATIONS, by=_BY)})", _NAME),),
            red_from=3,
        ),
        Panel(
            "Time lost to retries, by operation",
            "The ten highest: seconds lost for each second that passes, so the number of callers"
            " that on average wait for another attempt.",
            PLAIN,
            (Query(f"topk(10, {_rate(_LOST, by=_BY)})", _NAME),),
            stacked=True,
        ),
        Panel(
            "Duration of attempts",
            "Of attempts that ended, as their spans have it; from the buckets of a histogram, the"
            " longest of which is five minutes.",
            SECONDS,
            tuple(
                Query(
                    f"histogram_quantile({quantile},"
                    f" {_rate('flowmark_attempt_duration_seconds_bucket', by='le')})",
                    f"p{quantile * 100:.0f}",
                )
                for quantile in (0.5, 0.95, 0.99)
            ),
        ),
        Panel(
            "Operations of the range",
            "By workflow and operation. A name beyond the first 200 of a process counts under"
            " _other.",
            PLAIN,
            (
                Query(_rise(_OPERATIONS, by=_BY), "Operations"),
                Query(_rise(_ATTEMPTS, by=_BY), "Attempts"),
                Query(_rise(_OPERATIONS, _FAILED_OPERATIONS, _BY), "Failed in the end"),
                Query(_rise(_ATTEMPTS, _FAILED_ATTEMPTS, _BY), "Failed attempts"),
                Query(
                    f"{_rise(_ATTEMPTS, by=_BY)} / {_rise(_OPERATIONS, by=_BY)}", "Amplification"
                ),
                Query(_rise(_LOST, by=_BY), "Time lost, s"),
            ),
            kind="table",
            width=24,
        ),
    ),
)
