"""A backend as commands reach it over HTTP: options, requests, and its faults in words."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Final
from urllib.parse import urlsplit

import click
import requests

from flowmark_otel.commands.root import installed_version
from flowmark_otel.config import is_loopback
from flowmark_otel.config.parsers import secret, web_address
from flowmark_otel.errors import FlowmarkError, Forbidden, Unauthenticated, Unavailable

DEFAULT_ENDPOINT: Final = "http://127.0.0.1:4318"
USER_AGENT: Final = f"flowmark-otel-cli/{installed_version()}"
TIMEOUT_SECONDS: Final = 30.0
_SUCCESS: Final = 200


def remote(command: Callable[..., None]) -> Callable[..., None]:
    """The options ``--endpoint``, ``--api-key`` and ``--certificate``, passed as ``backend``."""

    @wraps(command)
    def joined(
        *, endpoint: str, api_key: str | None, certificate: str | None, **options: object
    ) -> None:
        command(backend=Backend(endpoint, api_key, certificate), **options)

    at = click.option(
        "--endpoint",
        envvar="FLOWMARK_ENDPOINT",
        default=DEFAULT_ENDPOINT,
        show_default=True,
        callback=_address,
        help="HTTP address of the backend (FLOWMARK_ENDPOINT).",
    )
    key = click.option(
        "--api-key",
        envvar="FLOWMARK_API_KEY",
        callback=_key,
        help="Key of the project, fmk_…; better in FLOWMARK_API_KEY than here.",
    )
    trusted = click.option(
        "--certificate",
        envvar="FLOWMARK_CERTIFICATE",
        type=click.Path(exists=True, dir_okay=False),
        help="Certificates to trust instead of the system's, PEM (FLOWMARK_CERTIFICATE).",
    )
    return at(key(trusted(joined)))


def _address(context: click.Context, parameter: click.Parameter, value: str) -> str:
    try:
        found = web_address(value)
    except ValueError as error:
        msg = str(error) if "found" in str(error) else f"{error}, found {value!r}"
        raise click.BadParameter(msg, context, parameter) from error
    if any(not "!" <= character <= "~" for character in found):
        msg = f"must hold neither spaces nor other than ASCII characters, found {value!r}"
        raise click.BadParameter(msg, context, parameter)
    return found


def _key(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """A key as it was copied, with the white space around it; its value is never said back."""
    if value is None or not value.strip():
        return None
    try:
        return secret(value.strip())
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from error


class Backend:
    """One backend, asked with one key; every fault is raised as an error of ours."""

    def __init__(
        self, endpoint: str, api_key: str | None = None, certificate: str | None = None
    ) -> None:
        self.endpoint = endpoint
        self.api_key = api_key
        self.certificate = certificate
        self._session = requests.Session()
        # A proxy of the environment must not see loopback, nor may a .netrc replace the key.
        self._session.trust_env = not _is_loopback(endpoint)
        self._session.auth = _keep_headers
        self._session.headers["user-agent"] = USER_AGENT
        if api_key:
            self._session.headers["authorization"] = f"Bearer {api_key}"

    def post(self, path: str, body: bytes, content_type: str) -> requests.Response:
        """The answer to a POST, whatever its status; raises Unavailable if there is none."""
        return self._ask("POST", path, data=body, headers={"content-type": content_type})

    def raw(self, path: str) -> requests.Response:
        """The answer to a GET, whatever its status; raises Unavailable if there is none."""
        return self._ask("GET", path)

    def get(self, path: str, **query: str | int | None) -> Any:  # noqa: ANN401  JSON
        """The JSON document of a successful GET; raises the error that its status stands for."""
        answer = self._ask("GET", path, params={k: v for k, v in query.items() if v is not None})
        if answer.status_code == requests.codes.unauthorized:
            msg = f"{self.endpoint} knows no such key; set FLOWMARK_API_KEY to a read key"
            raise Unauthenticated(msg)
        if answer.status_code == requests.codes.forbidden:
            msg = f"{self.endpoint} does not let this kind of key read; use a read key"
            raise Forbidden(msg)
        if answer.status_code != _SUCCESS:
            raise Refusal(answer)
        try:
            return answer.json()
        except ValueError as error:
            msg = f"{self.endpoint}{path} answered no JSON; is it a Flowmark backend?"
            raise FlowmarkError(msg) from error

    def _ask(self, method: str, path: str, **options: Any) -> requests.Response:  # noqa: ANN401
        try:
            return self._session.request(
                method,
                self.endpoint + path,
                timeout=TIMEOUT_SECONDS,
                verify=self.certificate or True,
                allow_redirects=False,
                **options,
            )
        except requests.Timeout as error:
            msg = f"{self.endpoint} gave no answer within {TIMEOUT_SECONDS:.0f} s"
            raise Unavailable(msg) from error
        except requests.RequestException as error:
            msg = f"{self.endpoint} cannot be reached ({_cause(error)}); does serve run there?"
            raise Unavailable(msg) from error


def _is_loopback(endpoint: str) -> bool:
    host = urlsplit(endpoint).hostname or ""
    return is_loopback(f"[{host}]:0" if ":" in host else f"{host or 'unknown'}:0")


def _keep_headers(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request


class Refusal(FlowmarkError):
    """An answer that is no success; ``status`` is its HTTP status."""

    def __init__(self, answer: requests.Response) -> None:
        self.status = answer.status_code
        super().__init__(f"{answer.url} answered {answer.status_code}: {_message(answer)}")


def _message(answer: requests.Response) -> str:
    try:
        return str(answer.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return answer.reason or "no reason given"


def _cause(error: BaseException) -> str:
    """The innermost cause, which names what happened; the outer ones only wrap it."""
    seen = error
    while True:
        inner = seen.__cause__ or seen.__context__
        if inner is None:
            break
        seen = inner
    return seen.strerror if isinstance(seen, OSError) and seen.strerror else type(seen).__name__
