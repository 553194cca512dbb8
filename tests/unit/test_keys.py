"""Project keys (contract, section 4, Projects; reliability, Security)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from flowmark_otel import names
from flowmark_otel.backend import audit
from flowmark_otel.backend.keys import REMEMBERED_SECONDS, Keys, bearer
from flowmark_otel.backend.store import Store, open_store, schema
from flowmark_otel.errors import Unauthenticated
from flowmark_otel.model import Principal
from tests.support.envelopes import WAIT, rows


class Hands:
    """A clock whose hands are moved by the test."""

    def __init__(self) -> None:
        self.seconds = 1_000.0

    def now_ns(self) -> int:
        """Epoch nanoseconds."""
        return int(self.seconds * 1_000_000_000)

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return self.seconds


@pytest.fixture
def clock() -> Hands:
    """A clock that stands still."""
    return Hands()


@pytest.fixture
def store(tmp_path: Path, clock: Hands) -> Iterator[Store]:
    """An empty store."""
    opened = open_store(f"sqlite:///{tmp_path}/store.db", clock=clock)
    yield opened
    opened.close()


def settle(store: Store) -> None:
    """Wait for all that was queued before."""
    store.write(lambda _: None).result(WAIT)


def test_a_key_stands_for_its_project(store: Store) -> None:
    """Contract, section 4: a key belongs to one project, which is made with it."""
    keys = Keys(store)
    key_id, token = keys.create("shop", names.KEY_INGEST)
    assert re.fullmatch(r"fmk_[a-z0-9]{12,}_[A-Za-z0-9]{43,}", token)
    project_id = keys.ensure_project("shop")
    principal = Principal(project_id, "shop", names.KEY_INGEST, key_id)
    assert keys.authenticate(token) == principal
    assert keys.ensure_project("other") != project_id


def test_the_secret_is_never_stored(store: Store) -> None:
    """Security: keys are hashed at rest and shown once."""
    key_id, token = Keys(store).create("shop", names.KEY_READ)
    [row] = rows(store, schema.keys)
    secret = token.removeprefix(f"fmk_{key_id}_")
    assert row["secret_hash"] == hashlib.sha256(secret.encode()).digest()
    assert secret not in repr(row)
    assert secret not in repr(Keys(store).list())


@pytest.mark.parametrize(
    "token",
    [
        "",
        "fmk",
        "fmk__",
        "fmk_a_b_c",
        "fmk_" + "a" * 999,
        "xyz_{id}_{secret}",
        "fmk_{id}_",
        "fmk_{id}_{other}",
        "fmk_{id}_\udc80",
        "fmk_\udc80_{secret}",
        "fmk_aaaaaaaaaaaaaaaa_{secret}",
    ],
)
def test_a_wrong_key_is_refused(store: Store, token: str) -> None:
    """Fault row 22: unknown id, wrong secret and no key at all are one error."""
    key_id, real = Keys(store).create("shop", names.KEY_INGEST)
    secret = real.removeprefix(f"fmk_{key_id}_")
    given = token.format(id=key_id, secret=secret, other=secret[::-1])
    with pytest.raises(Unauthenticated):
        Keys(store).authenticate(given)


def test_two_keys_of_a_project_are_active_for_rotation(store: Store) -> None:
    """Security: keys can be rotated without a gap; revoking one leaves the other."""
    keys = Keys(store)
    old, new = (keys.create("shop", names.KEY_INGEST) for _ in range(2))
    assert keys.authenticate(old[1]).project_id == keys.authenticate(new[1]).project_id
    assert keys.revoke(old[0])
    with pytest.raises(Unauthenticated):
        keys.authenticate(old[1])
    assert keys.authenticate(new[1]).key_id == new[0]
    assert [each.revoked_at is None for each in keys.list() if each.key_id == new[0]] == [True]


def test_making_and_revoking_keys_is_audited(store: Store, clock: Hands) -> None:
    """Contract, section 4, Projects: the audit has who made and who revoked a key, never it."""
    keys = Keys(store)
    key_id, token = keys.create("shop", names.KEY_READ, actor="command:ada")
    clock.seconds += 1
    for _ in range(2):  # the second time there is nothing to revoke
        assert keys.revoke(key_id, actor="command:eve")
    assert not keys.revoke("none")
    with store.engine.connect() as connection:
        found = audit.entries(connection)
    assert [(one.action, one.actor, one.subject, one.project) for one in found] == [
        ("revoke_key", "command:eve", f"{key_id} (read)", "shop"),
        ("create_key", "command:ada", f"{key_id} (read)", "shop"),
    ]
    assert [one.at for one in found] == [one.finished_at for one in found]
    assert found[0].at - found[1].at == 1_000_000_000
    assert token not in repr(found)


def test_revoking_what_does_not_exist_says_so(store: Store) -> None:
    """Contract, section 7: `keys revoke` of an unknown id is answered with no."""
    assert Keys(store).revoke("unknown") is False


def test_a_key_revoked_elsewhere_is_refused_within_seconds(
    store: Store, tmp_path: Path, clock: Hands
) -> None:
    """Security: a key revoked by another process works for at most five seconds more."""
    keys = Keys(store)
    key_id, token = keys.create("shop", names.KEY_INGEST)
    keys.authenticate(token)
    other = open_store(f"sqlite:///{tmp_path}/store.db", clock=clock)
    assert Keys(other).revoke(key_id)
    other.close()
    assert REMEMBERED_SECONDS <= 5
    clock.seconds += REMEMBERED_SECONDS
    with pytest.raises(Unauthenticated):
        keys.authenticate(token)


def test_a_key_expires(store: Store, clock: Hands) -> None:
    """Contract, section 7: `keys create --expires`; an expired key is refused at once."""
    keys = Keys(store)
    _, token = keys.create("shop", names.KEY_INGEST, clock.now_ns() + 1_000_000_000)
    keys.authenticate(token)
    clock.seconds += 1
    with pytest.raises(Unauthenticated):
        keys.authenticate(token)


def test_last_use_is_noted_at_most_once_a_minute(store: Store, clock: Hands) -> None:
    """Security: an operator sees which keys are in use, at the price of one write a minute."""
    keys = Keys(store)
    _, token = keys.create("shop", names.KEY_INGEST)
    noted = []
    for seconds in (0, 30, 29, 2):
        clock.seconds += seconds
        keys.authenticate(token)
        settle(store)
        noted.append(keys.list()[0].last_used_at)
    first = noted[0]
    assert noted == [first, first, first, first + 61_000_000_000 if first else None]


def test_kinds_are_a_closed_set(store: Store) -> None:
    """Contract, section 4: a key of a kind that does not exist cannot be made."""
    with pytest.raises(ValueError, match="ingest"):
        Keys(store).create("shop", "superuser")


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer ", "Basic fmk_a_b", "fmk_a_b"])
def test_only_a_bearer_token_is_looked_at(header: str | None) -> None:
    """Contract, section 4: `Authorization: Bearer fmk_…` and nothing else."""
    with pytest.raises(Unauthenticated):
        bearer(header)


def test_the_scheme_is_case_insensitive() -> None:
    """RFC 9110: authentication schemes have no case."""
    assert bearer(" bearer  fmk_a_b ") == "fmk_a_b"


def test_first_keys_are_for_a_store_that_nobody_used(store: Store) -> None:
    """Contract, section 4: an empty store gets its keys once; one in use gets none by itself."""
    keys = Keys(store)
    made = keys.first("default")
    assert made is not None
    assert [keys.authenticate(each).kind for each in made] == [names.KEY_INGEST, names.KEY_READ]
    assert keys.first("default") is None


def test_a_store_used_without_keys_gets_none(store: Store) -> None:
    """Security: evidence that was taken without keys is not opened to a key that nobody asked for.

    Kinds are missing that no valid key has: a revoked or expired one is as none.
    """
    keys = Keys(store)
    keys.ensure_project("default")
    assert keys.first("default") is None
    assert keys.missing() == (names.KEY_INGEST, names.KEY_READ)
    key_id, _ = keys.create("default", names.KEY_INGEST)
    keys.create("default", names.KEY_READ, expires_at=store.clock.now_ns())
    assert keys.missing() == (names.KEY_READ,)
    keys.create("default", names.KEY_ADMIN)
    assert keys.missing() == ()
    keys.revoke(key_id)
    assert keys.missing() == (names.KEY_INGEST,)


@pytest.mark.parametrize("name", ["", " ", "a\nb", "a\x1b[31m", "a\u202eb", "\ud800", "x" * 201])
def test_a_project_needs_a_name_that_can_be_read(store: Store, name: str) -> None:
    """Security: a project's name is shown in terminals and logs: no control characters in it."""
    keys = Keys(store)
    with pytest.raises(ValueError, match="the project's name must"):
        keys.create(name, names.KEY_READ)
    with pytest.raises(ValueError, match="the project's name must"):
        keys.ensure_project(name)
    assert keys.list() == []


def test_secrets_are_compared_in_constant_time(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Security, "keys": hashes of one length, in constant time, for an unknown id as well."""
    keys = Keys(store)
    _, token = keys.create("crm", names.KEY_READ)
    compared: list[tuple[bytes, bytes]] = []

    def comparing(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return one == other

    monkeypatch.setattr("flowmark_otel.backend.keys.hmac.compare_digest", comparing)
    assert keys.authenticate(token).project == "crm"
    for wrong in (token[:-1] + ("0" if token[-1] != "0" else "1"), f"fmk_{'0' * 16}_{'0' * 64}"):
        with pytest.raises(Unauthenticated):
            keys.authenticate(wrong)
    assert [(len(one), len(other)) for one, other in compared] == [(32, 32)] * 3
