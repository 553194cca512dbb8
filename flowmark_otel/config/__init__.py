"""The settings, each declared once: type, default, bounds, environment name, help."""

from flowmark_otel.config.client import ClientOptions, client_options, configured
from flowmark_otel.config.parsers import (
    address,
    capabilities,
    file,
    flag,
    is_loopback,
    seconds,
    split_address,
    text,
    trace_template,
    web_origin,
    whole,
)
from flowmark_otel.config.proxy import ProxyOptions
from flowmark_otel.config.serve import ServeOptions, default_database_url
from flowmark_otel.config.settings import (
    Setting,
    Settings,
    declared,
    environment_name,
    resolve,
    setting,
)

__all__ = [
    "ClientOptions",
    "ProxyOptions",
    "ServeOptions",
    "Setting",
    "Settings",
    "address",
    "capabilities",
    "client_options",
    "configured",
    "declared",
    "default_database_url",
    "environment_name",
    "file",
    "flag",
    "is_loopback",
    "resolve",
    "seconds",
    "setting",
    "split_address",
    "text",
    "trace_template",
    "web_origin",
    "whole",
]
