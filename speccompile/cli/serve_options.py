"""Options of `speccompile serve` that set limits, in groups, each with the record that it fills."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from speccompile.cli.options import FloatRange
from speccompile.errors import UsageError

if TYPE_CHECKING:
    from speccompile.serving.http.connection_limits import ConnectionLimits
    from speccompile.serving.http.reading.limits import ReadLimits
    from speccompile.serving.scheduler import Limits, SessionFolder

F = TypeVar("F", bound=Callable[..., Any])

POLICIES = ("fcfs", "priority")
"""Values of `Limits.scheduling_policy`, which importing would take longer than the help may."""


def _group(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Return a decorator that adds the options to a command, in this order."""

    def add(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return add


queue_options = _group(
    click.option("--waiting", metavar="N", type=click.IntRange(min=0), help="Requests that may wait; by default 64."),
    click.option(
        "--waiting-tokens", metavar="N", type=click.IntRange(min=0), help="Tokens of their prompts; by default 65536.",
    ),
    click.option("--waiting-seconds", metavar="S", type=FloatRange(0, min_open=True), help="How long one may wait."),
    click.option(
        "--request-seconds", metavar="S", type=FloatRange(0, min_open=True), help="How long one may take in all."
    ),
    click.option(
        "--sequences", metavar="N", type=click.IntRange(min=1), help="That one prompt may get; by default 16.",
    ),
    click.option(
        "--client-rows", metavar="N", type=click.IntRange(min=1), help="Batch slots that an API key may have.",
    ),
    click.option(
        "--scheduling-policy", "policy", type=click.Choice(POLICIES), default=POLICIES[0], show_default=True,
        help="Who is served next: who came first, or the lowest `priority` of a request, also instead of a running "
        "one.",
    ),
    click.option("--no-reuse", is_flag=True, help="Read every prompt anew, also what an earlier one began with."),
    click.option(
        "--sessions",
        metavar="FOLDER",
        type=click.Path(path_type=Path),
        help="Keep texts in this folder: prompts that begin like one go on from there, also after a restart.",
    ),
    click.option(
        "--sessions-limit-gb", "sessions_gb", metavar="GB", type=FloatRange(min=0, min_open=True),
        help="Size of that folder in GB, by default 10; texts used least recently are removed.",
    ),
)  # fmt: skip
"""Options of the queue and the batch slots: see `scheduler_limits` and `session_folder`."""

reading_options = _group(
    click.option(
        "--read-seconds", metavar="S", type=FloatRange(min=0, min_open=True), default=3.0, show_default=True,
        help="Seconds of a processor that reading a request may take: its JSON, chat template, tokens and grammar.",
    ),
    click.option(
        "--read-memory", metavar="MIB", type=click.IntRange(min=16), default=512, show_default=True,
        help="Memory that it may take meanwhile, in MiB.",
    ),
    click.option(
        "--grammar-bytes", metavar="N", type=click.IntRange(min=1), default=64 * 1024, show_default=True,
        help="Of a JSON schema, regular expression, grammar or list of choices.",
    ),
)  # fmt: skip
"""Options of reading one request: see `read_limits`."""

connection_options = _group(
    click.option(
        "--header-bytes", metavar="N", type=click.IntRange(min=1024), default=32 * 1024, show_default=True,
        help="Of a request's line and headers.",
    ),
    click.option(
        "--headers", metavar="N", type=click.IntRange(min=1), default=100, show_default=True, help="Of a request.",
    ),
    click.option(
        "--header-seconds", metavar="S", type=FloatRange(min=0, min_open=True), default=10.0, show_default=True,
        help="From a request's first byte until its headers must have come.",
    ),
    click.option(
        "--body-seconds", metavar="S", type=FloatRange(min=0, min_open=True), default=60.0, show_default=True,
        help="Until its body must have come, and for which a client may leave its answer unread.",
    ),
    click.option(
        "--connections", metavar="N", type=click.IntRange(min=1),
        help="At once; by default what the limit of open files (ulimit -n) has room for, at most 1024. A few more may "
        "ask for /health and /metrics only.",
    ),
    click.option(
        "--address-connections", metavar="N", type=click.IntRange(min=1),
        help="Of one address; by default half of --connections. Behind a proxy, which has one address, give as many.",
    ),
)  # fmt: skip
"""Options of connections: see `connection_limits`."""


def scheduler_limits(given: Mapping[str, Any]) -> "Limits":
    """Return the limits of the queue; those that are not given have the scheduler's defaults."""
    from speccompile.serving.scheduler import Limits

    limits = {
        "requests": given["waiting"],
        "tokens": given["waiting_tokens"],
        "sequences": given["sequences"],
        "queue_seconds": given["waiting_seconds"],
        "seconds": given["request_seconds"],
        "client_rows": given["client_rows"],
    }
    written = {name: value for name, value in limits.items() if value is not None}
    return Limits(**written, reuse=not given["no_reuse"], scheduling_policy=given["policy"])


def session_folder(given: Mapping[str, Any]) -> "SessionFolder | None":
    """Return the folder of sessions, which is made if it is not there. Raise UsageError if it cannot be used."""
    from speccompile.serving.scheduler import SessionFolder

    path, limit = given["sessions"], given["sessions_gb"]
    if path is None:
        if limit is not None:
            raise UsageError(f"--sessions-limit-gb {limit}: there is no folder to limit", hint="give --sessions FOLDER")
        return None
    if given["no_reuse"]:
        raise UsageError("received --sessions and --no-reuse, expected one of them", hint="leave out one of them")
    return SessionFolder(path) if limit is None else SessionFolder(path, limit)


def read_limits(given: Mapping[str, Any]) -> "ReadLimits":
    """Return the limits of reading one request."""
    from speccompile.serving.http.reading.limits import ReadLimits

    return ReadLimits(given["read_seconds"], given["read_memory"], given["grammar_bytes"])


def connection_limits(given: Mapping[str, Any]) -> "ConnectionLimits":
    """Return the limits of connections."""
    from speccompile.serving.http.connection_limits import ConnectionLimits

    names = ("header_bytes", "headers", "header_seconds", "body_seconds", "connections", "address_connections")
    return ConnectionLimits(**{name: given[name] for name in names})
