"""What holds for every test: skips are named, and count as failures where they need not be."""

from __future__ import annotations

import logging
import os
import shutil
import signal
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.support.postgres import Cluster, cluster

BY_HAND = {
    "go": "Go 1.26, or any from 1.21 that may fetch it",
    "schemathesis": "it under Python 3.11 or newer",
    "weaver": "OpenTelemetry's Weaver, 0.25 or newer, from its sources",
}
"""What no package of Debian has as new as tests need it."""

pytest_plugins = ("tests.support.fault_table",)

CI = os.environ.get("CI") == "true"

settings.register_profile("dev", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("dev"), derandomize=True, print_blob=True)
settings.load_profile("ci" if CI else "dev")


def pytest_configure() -> None:
    """Let Ctrl-C reach what tests start: a shell ignores it for what it runs in the background."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_make_parametrize_id(val: object) -> str | None:
    """Name bytes by their length: their content may hold a time or an id made just now.

    Processes that share a run have to give every test the same name.
    """
    return f"{len(val)}-bytes" if isinstance(val, bytes) else None


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test marked ``needs`` if, and only if, one of its programs is missing."""
    wanted = [program for mark in item.iter_markers("needs") for program in mark.args]
    missing = [program for program in wanted if shutil.which(program) is None]
    if missing:
        how = "; ".join(f"install {BY_HAND[name]}" for name in missing if name in BY_HAND)
        how = how or "as root, `make deps` installs it"
        pytest.skip(f"needs {', '.join(missing)}; {how}")


@pytest.fixture(autouse=True)
def own_logging() -> None:
    """Undo what an earlier test set for the whole process: levels, and loggers switched off."""
    logging.disable(logging.NOTSET)
    logging.getLogger().setLevel(logging.WARNING)
    for name, logger in logging.root.manager.loggerDict.items():
        if isinstance(logger, logging.Logger) and name.partition(".")[0] == "flowmark_otel":
            logger.disabled, logger.propagate = False, True
            logger.setLevel(logging.NOTSET)


STORES = ("sqlite", pytest.param("postgresql", marks=pytest.mark.needs("psql")))
"""The kinds of store, as the parameters of a fixture."""


@pytest.fixture(scope="session")
def postgres() -> Iterator[Cluster]:
    """A PostgreSQL server, started when a test first asks for it."""
    with cluster() as made:
        yield made


@pytest.fixture(scope="session")
def new_store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], str]:
    """Makes the URL of an empty store of a kind, which is there already on PostgreSQL."""

    def made(kind: str) -> str:
        if kind == "sqlite":
            return f"sqlite:///{tmp_path_factory.mktemp('store')}/store.db"
        found: Cluster = request.getfixturevalue("postgres")
        return found.store()

    return made


@pytest.fixture(params=STORES)
def store_url(request: pytest.FixtureRequest, new_store: Callable[[str], str]) -> Iterator[str]:
    """The URL of an empty store, of each kind in turn."""
    url = new_store(request.param)
    server = request.getfixturevalue("postgres") if request.param == "postgresql" else None
    yield url
    if server is not None:
        server.give_back(url)


def _skipped(reporter: pytest.TerminalReporter) -> list[tuple[str, str]]:
    """Name and reason of each test that was skipped."""
    reports = reporter.stats.get("skipped", [])
    return [(report.nodeid, str(report.longrepr[2])) for report in reports]


def _avoidable(reporter: pytest.TerminalReporter) -> bool:
    """Whether a test was skipped that root could have had run: by what apt-get installs."""
    by_hand = tuple(f"install {how}" for how in BY_HAND.values())
    return any(not reason.endswith(by_hand) for _, reason in _skipped(reporter))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In CI, where root can install what is missing, a skip is a failure."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    strict = CI and os.geteuid() == 0
    if strict and reporter is not None and session.exitstatus == 0 and _avoidable(reporter):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """End with the list of what was not shown, and why."""
    skipped = _skipped(terminalreporter)
    if skipped:
        terminalreporter.section("skipped: not shown by this run")
        for name, reason in skipped:
            terminalreporter.write_line(f"{name}: {reason.removeprefix('Skipped: ')}")
        if CI and os.geteuid() == 0 and _avoidable(terminalreporter):
            terminalreporter.write_line("in CI, as root, a skipped test is a failure")
