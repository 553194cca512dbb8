"""Secrets as applications let them slip, and the parts of them that must be nowhere afterwards."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any, Final

from flowmark_otel import names
from tests.support import payloads

TEXTS: Final = {
    "a JSON web token": "was eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ3aG8ifQ.c2lnbmF0dXJlLW9mLWp3dA here",
    "an AWS key id": "The key AKIAQ7ZRSPTVWXYZ2345 is not known",
    "a private key": "-----BEGIN PRIVATE KEY-----\nMIIpriv4teBytes\n-----END PRIVATE KEY-----",
    "half a private key": "-----BEGIN PRIVATE KEY-----\nMIIcutShortPriv4te",
    "a key of ours": f"fmk_0123456789abcdef_{'5e' * 32} was refused",
    "a bearer token": "401 for Bearer b3arer-of-an-error/text==",
    "a lower-case bearer token": "sent 'bearer l0wercase-b3arer-token'",
    "a password of a DSN": "cannot connect: host=db password=pw-in-a-dsn user=crm",
    "a quoted password": "connect(user='crm', password='pw with \"spaces\" in quotes')",
    "a short password": "password=pw-9",
    "a password after a colon": "login failed, password: pw-after-a-colon",
    "a token of a URL": "GET https://api.example/v1?access_token=tok-of-a-url&page=2 failed",
    "an escaped token": "to /login?next=%2Fa%3Ftoken%3Dtok-in-an-escaped-url",
    "a signature of a URL": "https://blobs.example/b?sv=2024&sig=s1g-of-a-url%2B",
    "a password of an address": "postgresql://crm:pw-of-an-address@db.example/crm is down",
    "a header": "sent Authorization: Basic YmFzaWMtb2YtYS1oZWFkZXI=\nand waited",
    "a cookie": "Cookie: sid=c00kie-of-a-session; theme=dark-c00kie",
    "a key in JSON": '{"customer": 7, "api_key": "key-1n-json", "page": 2}',
    "a key in a repr": "{'X-Api-Key': 'key-1n-a-repr'}",
    "a key in escaped JSON": '{\\"client_secret\\": \\"key-1n-escaped-json\\"}',
}
"""Texts as they stand in results, error codes, exceptions and statements."""

PARTS: Final = (
    *("c2lnbmF0dXJlLW9mLWp3dA", "AKIAQ7ZRSPTVWXYZ2345", "priv4teBytes", "cutShortPriv4te"),
    *("5e5e5e5e", "b3arer-of-an-error", "l0wercase-b3arer", "pw-in-a-dsn", 'spaces" in quotes'),
    *('spaces\\" in quotes', "pw-9", "pw-after-a-colon", "tok-of-a-url"),
    *("tok-in-an-escaped-url", "s1g-of-a-url"),
    *("pw-of-an-address", "YmFzaWMtb2YtYS1oZWFkZXI", "c00kie", "key-1n-json", "key-1n-a-repr"),
    *("key-1n-escaped-json", "t0ld-by-its-name", "raw-idempotency-key"),
)
"""What must not be found in any byte that anybody keeps or shows."""

NAMED: Final = dict.fromkeys(
    (
        *("password", "db_passwd", "api_key", "client.secret", "access_token", "authorization"),
        *("session_id", "credentials", "private_key"),
    ),
    "t0ld-by-its-name",
)
"""Attributes whose names say that their values are secret."""

OWN: Final = {names.ATTEMPT_GROUP_ID: "g", names.RUN_ID: "run-1", names.WORKFLOW_NAME: "crm.sync"}


def results() -> dict[str, object]:
    """Results of a run: every text, and every name."""
    texts = {f"note_{number}": text for number, text in enumerate(TEXTS.values())}
    return {f"{names.RUN_RESULT_PREFIX}{key}": value for key, value in {**texts, **NAMED}.items()}


def beside() -> dict[str, object]:
    """Attributes of a span that are none of ours."""
    return {
        **{f"app.{key}": value for key, value in NAMED.items()},
        "http.request.header.authorization": ["Bearer t0ld-by-its-name"],
        "app.nested": {"deeper": [{"password": "t0ld-by-its-name"}, list(TEXTS.values())]},
        **{f"app.text.{number}": text for number, text in enumerate(TEXTS.values())},
    }


def spans() -> list[payloads.Json]:
    """A run and its attempts, of which some break rules and one is a conflict."""
    failed = {"code": 2, "message": " ".join(TEXTS.values())}
    own = {**OWN, names.ATTEMPT_IDEMPOTENCY_KEY: "raw-idempotency-key", **beside()}
    found = [payloads.span(1, {**OWN, **results(), **beside()}, status=failed)]
    for number, text in enumerate(TEXTS.values(), 1):
        fields: dict[str, Any] = {
            "parentSpanId": f"{1:016x}",
            "status": failed,
            "events": [_exception(text)],
        }
        own[names.ATTEMPT_NUMBER] = number
        coded = {**own, names.ERROR_CODE: text, "error.type": text}
        found.append(payloads.span(100 + number, coded, **fields))
        found.append(payloads.span(200 + number, {**own, names.ATTEMPT_NUMBER: text}, **fields))
    twin = {**OWN, **results(), f"{names.RUN_RESULT_PREFIX}other": "other"}
    return [*found, payloads.span(1, twin, status=failed)]


def request() -> payloads.Json:
    """All of it under a resource that has secrets too."""
    found = payloads.request(spans())
    given = {**beside(), "process.command_line": "crm --password=pw-in-a-dsn"}
    found["resourceSpans"][0]["resource"]["attributes"] += payloads.attributes(given)
    return found


def _exception(text: str) -> dict[str, object]:
    given = {"exception.message": text, "exception.stacktrace": f"in f\n{text}"}
    return {"name": "exception", "timeUnixNano": "1", "attributes": payloads.attributes(given)}


def leaks(content: bytes | str) -> list[str]:
    """The parts that are found in some bytes, also where they were put into base64."""
    raw = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    return [part for part in PARTS if any(form in raw for form in _forms(part))]


def leaks_in(folder: Path) -> dict[str, list[str]]:
    """The parts in all files below a folder, by file."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    found = {str(path): leaks(path.read_bytes()) for path in files}
    return {path: parts for path, parts in found.items() if parts}


def _forms(part: str) -> list[bytes]:
    """As it is, and in base64 at each of its three places."""
    raw = part.encode()
    coded = [base64.b64encode(bytes(shift) + raw)[4:-4] for shift in range(3)]
    return [raw, *(each for each in coded if len(each) > 6)]
