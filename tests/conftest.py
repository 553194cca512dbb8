"""What holds for every test: skips are named, and count as failures where they need not be."""

from __future__ import annotations

import os
import shutil

import pytest
from hypothesis import HealthCheck, settings

CI = os.environ.get("CI") == "true"

settings.register_profile("dev", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("dev"), derandomize=True, print_blob=True)
settings.load_profile("ci" if CI else "dev")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test marked ``needs`` if, and only if, one of its programs is missing."""
    wanted = [program for mark in item.iter_markers("needs") for program in mark.args]
    missing = [program for program in wanted if shutil.which(program) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}; as root, `make deps` installs it")


def _skipped(reporter: pytest.TerminalReporter) -> list[tuple[str, str]]:
    """Name and reason of each test that was skipped."""
    reports = reporter.stats.get("skipped", [])
    return [(report.nodeid, str(report.longrepr[2])) for report in reports]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In CI, where root can install what is missing, a skip is a failure."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    strict = CI and os.geteuid() == 0
    if strict and reporter is not None and session.exitstatus == 0 and _skipped(reporter):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """End with the list of what was not shown, and why."""
    skipped = _skipped(terminalreporter)
    if skipped:
        terminalreporter.section("skipped: not shown by this run")
        for name, reason in skipped:
            terminalreporter.write_line(f"{name}: {reason.removeprefix('Skipped: ')}")
        if CI and os.geteuid() == 0:
            terminalreporter.write_line("in CI, as root, a skipped test is a failure")
