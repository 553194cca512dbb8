"""Pages over large runs: below 300 kB, whatever the run holds, and each attempt on one of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import large
from tests.support.html_page import parse
from tests.support.loop import loop_thread
from tests.support.site import Browser, Site

MOST = 300_000


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site with runs of 10,000 operations, and one with a group of 1,000 attempts."""
    with loop_thread() as loop:
        made = Site(tmp_path_factory.mktemp("large") / "store.db", loop)
        large.fill(made.store, made.project_id, large.pairs("pairs", 1, 10_000))
        large.fill(made.store, made.project_id, large.one_group("group", 1_000, 10**9))
        large.fill(made.store, made.project_id, large.mixed("mixed", 10_000, 2 * 10**9))
        yield made
        made.close()


def _small(client: Browser, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200, path
    assert len(answer.content) < MOST, (path, len(answer.content))
    return answer.text


def test_a_run_of_ten_thousand_operations_is_read_page_by_page(site: Site) -> None:
    """A9, D5: below 300 kB each; the pages of groups hold every group once, in order."""
    client, key = site.signed_in(), site.run_key(run_id="pairs-0")
    seen: list[str] = []
    path: str | None = f"/runs/{key}"
    for _ in range(6):
        assert path is not None
        page = parse(_small(client, path))
        seen += [head.all("code")[0].text for head in page.all("div", "group-h")]
        ways = [link for link in page.all("a") if link.text == "More groups"]
        path = ways[0].attributes["href"] if ways else None
    assert len(seen) >= 150
    assert seen == [f"batch-{number}" for number in range(len(seen))]
    assert "10,000" in _small(client, f"/runs/{key}")
    _small(client, f"/runs/{key}/events")
    _small(client, "/runs")


def test_groups_of_many_attempts_leave_a_page_small(site: Site) -> None:
    """D5: where groups have twenty attempts a page has fewer of them."""
    client, key = site.signed_in(), site.run_key(run_id="mixed")
    page = parse(_small(client, f"/runs/{key}"))
    assert 5 <= len(page.all("div", "group-h")) <= 30
    assert len(page.all("table", "ord")[0].all("tbody")[0].all("tr")) >= 50


def test_a_group_of_a_thousand_attempts_stays_readable(site: Site) -> None:
    """A9, D5: folded on the run's page, a hundred at a time on its own, each with its evidence."""
    client, key = site.signed_in(), site.run_key(run_id="group")
    run = parse(_small(client, f"/runs/{key}"))
    assert len(run.all("table", "att")[0].all("tbody")[0].all("tr")) == 9
    [way] = [link.attributes["href"] for link in run.all("a") if link.text == "show all 1,000"]
    labels: list[str] = []
    path: str | None = way
    while path is not None:
        page = parse(_small(client, path))
        rows = page.all("table", "att")[0].all("tbody")[0].all("tr")
        labels += [row.all("td")[0].text for row in rows]
        later = [link for link in page.all("a") if link.text == "Later attempts"]
        path = later[0].attributes["href"] if later else None
    assert labels == [f"{number:,}" for number in range(1, 1001)]
    _small(client, way.replace("/group?", "/attempt?") + "&number=500")
