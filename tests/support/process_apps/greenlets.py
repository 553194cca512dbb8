"""Greenlets that record, under a standard library that gevent has patched."""

from __future__ import annotations

import sys

from gevent import monkey

monkey.patch_all()

import gevent  # noqa: E402 - patched first

from tests.support.process_apps.record import record  # noqa: E402 - patched first

gevent.joinall([gevent.spawn(record, name) for name in ("one", "two")], raise_error=True)
for _ in range(100):  # the hub turns while requests wait for their answers
    gevent.sleep(0.001)
sys.stdout.write("turned\n")
sys.stdout.flush()
input()
