"""For applications' own tests: recording into memory, and strict doubles (contract, section 6).

Needs the base install alone, and pytest only for ``flowmark_otel.testing.plugin``, which has the
fixture ``flowmark_backend``::

    def test_push_is_tried_again(flowmark_backend):
        sync(customer="42")
        run = flowmark_backend.run("crm.sync")
        assert_attempts(run, "push-to-crm", ["failed", "completed"])
"""

from flowmark_otel.testing.assertions import assert_attempts
from flowmark_otel.testing.backend import InMemoryBackend
from flowmark_otel.testing.clock import FakeClock, IdSequence
from flowmark_otel.testing.conformance import assert_transport_conforms
from flowmark_otel.testing.recording import recording
from flowmark_otel.testing.runs import RecordedRun
from flowmark_otel.testing.transport import RecordingTransport, Request

__all__ = [
    "FakeClock",
    "IdSequence",
    "InMemoryBackend",
    "RecordedRun",
    "RecordingTransport",
    "Request",
    "assert_attempts",
    "assert_transport_conforms",
    "recording",
]
