"""Contexts to HTML: one environment, autoescape on, every value made visible first."""

from __future__ import annotations

import re
from functools import cache
from importlib import metadata
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup, escape

from flowmark_otel.dashboard.marks import MARKS, Kind
from flowmark_otel.dashboard.pages.frame import Page
from flowmark_otel.dashboard.pages.links import TABS
from flowmark_otel.dashboard.pages.news import NewsPage
from flowmark_otel.dashboard.text import visible

_ADDRESS: Final = re.compile(r"[!-~]{1,16384}")


def render(page: Page) -> str:
    """The HTML of a page, from its template and its context (named ``page`` there)."""
    return _environment().get_template(page.template).render(page=page)


def fragment(page: NewsPage) -> str:
    """The HTML of a part of a page."""
    return _environment().get_template(page.template).render(page=page)


def _shown(value: object) -> object:
    """What every ``{{ … }}`` goes through before it is escaped."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return visible(value)


@pass_context
def _address(context: Context, value: str) -> object:
    """An address of ours, in the page's project.

    Whole: it is long where names are, and has nothing to be made visible.
    """
    if value.startswith("/"):
        value = f"{context['page'].frame.base}{value}"
    return Markup(escape(value)) if _ADDRESS.fullmatch(value) else visible(value)  # noqa: S704  escaped


def _version() -> str:
    try:
        return metadata.version("flowmark-otel")
    except metadata.PackageNotFoundError:
        return "from source"


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("flowmark_otel.dashboard"),
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters["address"] = _address
    environment.globals["marks"] = MARKS
    environment.globals["kinds"] = Kind
    environment.globals["version"] = _version()
    environment.globals["tabs"] = TABS
    return environment
