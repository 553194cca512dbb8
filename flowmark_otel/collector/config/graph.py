"""The rules between sections: references, policies, who may send (contract, section 9).

Every rule is judged on what could be read, so that one fault does not hide the next.
"""

from __future__ import annotations

from flowmark_otel.collector.config import components, flow, sharing
from flowmark_otel.collector.config.document import Path
from flowmark_otel.collector.config.options import Policy
from flowmark_otel.collector.config.sections import SERVICE, Sections, place
from flowmark_otel.collector.config.values import nearest, shown
from flowmark_otel.collector.plan import Component, Kind
from flowmark_otel.config import is_loopback


def check(found: Sections, *, no_auth: bool) -> None:
    """Note every fault between sections. ``no_auth``: receivers that others reach need no token."""
    for pipeline_id in found.pipelines:
        _references(found, pipeline_id)
    for component in (*found.of(Kind.CONNECTOR), *found.of(Kind.EXPORTER)):
        if isinstance(component.options, Policy):
            _policy(found, component, component.options)
    if found.service is not None:
        _extensions(found, found.service.extensions)
    for component in found.of(Kind.RECEIVER):
        _doors(found, component, no_auth=no_auth)
    flow.check(found)
    sharing.check(found)


def _references(found: Sections, pipeline_id: str) -> None:
    options = found.pipelines[pipeline_id]
    for name, kind, listed in (
        ("receivers", Kind.RECEIVER, options.receivers),
        ("exporters", Kind.EXPORTER, options.exporters),
    ):
        known = found.declared[kind] | found.declared[Kind.CONNECTOR]
        for at, each in enumerate(listed):
            where = place(pipeline_id, name, at)
            if each not in known:
                found.fault(where, f"{shown(each)} is not declared{nearest(each, known)}")
            elif each in listed[:at]:
                found.fault(where, f"{shown(each)} stands twice; leave one of them")
            elif each in found.declared[kind] & found.declared[Kind.CONNECTOR]:
                found.fault(
                    where,
                    f"{shown(each)} is {kind.name.lower()} and connector; name one otherwise,"
                    f" {each}/another",
                )


def _policy(found: Sections, component: Component, policy: Policy) -> None:
    path: Path = (component.kind.value, component.id)
    if policy.on_error == "route" and policy.errors is None:
        found.fault((*path, "errors"), "is missing; name the errors connector to route to")
    elif policy.on_error != "route" and policy.errors is not None:
        found.fault(
            (*path, "errors"),
            f"is not used under on_error: {policy.on_error}; set on_error: route, or leave it out",
        )
    elif policy.errors is not None:
        _errors_target(found, (*path, "errors"), policy.errors)
    if policy.failure_budget is not None and policy.on_error == "fail":
        found.fault(
            (*path, "failure_budget"),
            "needs on_error: route or continue; under fail every failure is told to its sender",
        )


def _errors_target(found: Sections, where: Path, target: str) -> None:
    declared = {
        each
        for each in found.declared[Kind.CONNECTOR]
        if each.partition("/")[0] == components.ERRORS
    }
    if target not in declared:
        found.fault(where, f"{shown(target)} is no errors connector{nearest(target, declared)}")
    elif not found.receiving_from(target) and not found.incomplete:
        found.fault(
            where,
            f"no pipeline receives from {target}, so letters would be lost;"
            f" add logs/letters: {{receivers: [{target}], exporters: [file/letters]}}",
        )


def _extensions(found: Sections, named: tuple[str, ...]) -> None:
    declared = found.declared[Kind.EXTENSION]
    for at, each in enumerate(named):
        if each not in declared:
            found.fault(
                (SERVICE, "extensions", at),
                f"{shown(each)} is not declared{nearest(each, declared)}",
            )
        elif each in named[:at]:
            found.fault((SERVICE, "extensions", at), f"{shown(each)} stands twice; leave one")


def _doors(found: Sections, component: Component, *, no_auth: bool) -> None:
    used = found.service.extensions if found.service is not None else ()
    for name, server in sharing.servers_of(component):
        path: Path = (component.kind.value, component.id, "protocols", name)
        declared = found.declared[Kind.EXTENSION]
        if server.auth is None:
            if not is_loopback(server.endpoint) and not no_auth:
                found.fault(
                    (*path, "endpoint"),
                    "others can reach it and nothing says who may send; set auth: {authenticator:"
                    " bearertokenauth}, listen on 127.0.0.1, or give --insecure-no-auth",
                )
        elif server.auth.authenticator not in declared:
            wanted = server.auth.authenticator
            found.fault(
                (*path, "auth", "authenticator"),
                f"{shown(wanted)} is no extension{nearest(wanted, declared)}",
            )
        elif server.auth.authenticator not in used and found.service is not None:
            found.fault(
                (*path, "auth", "authenticator"),
                f"{server.auth.authenticator} is not in service.extensions; add it there",
            )
