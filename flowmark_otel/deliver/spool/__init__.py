"""Records that outlive their process: a folder of append-only files (E1).

What holds. When ``Spool.append`` returns, the operating system has the records (one write): they
survive SIGKILL of the process. ``Spool.sync`` makes them survive a power cut; ``Keeper`` calls it
within a second. Every record is handed out until it is settled, by this process or by the next,
and never again after that, but for what a kill or power cut leaves unnoted: then it is sent again
under the same event id, which the backend answers with ``duplicate``.

The folder (``folder``, mode 0700; files 0600). Each process appends to segments of its own,
``<stem>.v1.spool``, and holds their locks (flock) for as long as it lives; a segment whose lock is
free was left behind and is adopted by whoever looks next. flock needs a local file system, or one
whose locks end with their holder. Beside a segment ``<stem>.v1.acks`` notes what is settled
(``acks``). A segment goes when it is full, or its process closed, and all of it is settled. The
bytes of all segments are bounded; what would pass the bound is refused.

A record (``framing``) is a header with length, time and checksum, and an opaque payload. A torn
tail, or a corrupt stretch in the middle, is copied to the quarantine folder and skipped; all whole
records around it are handed out. The client's payload is one envelope with its resource
(``codec``), the collector's is its own. A payload of a newer version is set aside, not misread.

Replay. ``quarantine/<stem>.v1.unacknowledged`` holds, as a segment does, the records that were
answered without a receipt: they wait for an operator, and take no room from the spool. To send
them again, take the file's lock (``folder.claim``; while its process lives it is held), read it
with ``framing.walk`` and ``codec``, deliver, remove the file. ``….unreadable`` is for a newer
version to read in the same way; ``….torn`` is bytes only.

Built: folder, spool, shelf, keeper. Shut down: keeper, spool, shelf.
"""

from flowmark_otel.deliver.spool.backlog import SpoolBacklog, SpoolHandout
from flowmark_otel.deliver.spool.segment import Record
from flowmark_otel.deliver.spool.shelf import Shelf
from flowmark_otel.deliver.spool.spool import MAX_BYTES, Mark, Spool, SpoolFull

__all__ = [
    "MAX_BYTES",
    "Mark",
    "Record",
    "Shelf",
    "Spool",
    "SpoolBacklog",
    "SpoolFull",
    "SpoolHandout",
]
