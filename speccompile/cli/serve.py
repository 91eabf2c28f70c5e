"""`speccompile serve`: serve a bundle behind OpenAI's API."""

import os
from pathlib import Path
from typing import Any

import click

from speccompile.cli.adapter_option import ADAPTER
from speccompile.cli.options import SIGNED_BY, THREADS, FloatRange
from speccompile.cli.serve_options import (
    connection_limits,
    connection_options,
    queue_options,
    read_limits,
    reading_options,
    scheduler_limits,
    session_folder,
)
from speccompile.errors import UsageError
from speccompile.progress import LOGGER

PATH = click.Path(path_type=Path)
KEYS = "SPECCOMPILE_API_KEY"
_KEY_FILE_BYTES = 1 << 20
"""Largest file of keys."""


@click.command("serve")
@click.argument("folder", metavar="BUNDLE", type=PATH)
@click.option("--host", metavar="ADDRESS", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", metavar="N", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0 takes a free one."
)
@click.option("--unix", metavar="PATH", type=PATH, help="Listen on this Unix socket instead.")
@click.option("--served-model-name", "name", metavar="NAME", help="The model's name; by default the bundle's.")
@click.option("--api-key", "keys", metavar="KEY", multiple=True, help="Let only these in. May be given several times.")
@click.option("--api-key-file", "key_file", metavar="FILE", type=PATH, help="Keys, one a line.")
@click.option("--engine", metavar="NAME", help="Engine of the bundle; by default the first that can run here.")
@click.option("--threads", **THREADS)
@click.option("--adapter", "adapters", **ADAPTER)
@click.option("--autoregressive", is_flag=True, help="One token a round, for requests that do not ask for drafts.")
@queue_options
@click.option("--body-bytes", type=click.IntRange(min=1), default=4 * 2**20, show_default=True, help="Of a request.")
@reading_options
@connection_options
@click.option(
    "--cors-origin",
    "origins",
    metavar="ORIGIN",
    multiple=True,
    help="Let pages of this origin ask. May be given several times.",
)
@click.option(
    "--image-host", "image_hosts", metavar="HOST", multiple=True,
    help="Fetch pictures from this host (HOST or HOST:PORT), by http and https. By default nothing is fetched.",
)  # fmt: skip
@click.option(
    "--image-cache", metavar="MIB", type=click.IntRange(min=0),
    help="Memory for rows of encoded pictures, which are kept for those that come again, by default 256; 0 keeps none.",
)  # fmt: skip
@click.option(
    "--grace", metavar="S", type=FloatRange(min=0), default=30.0, show_default=True,
    help="Seconds that requests get to finish when the server is told to end.",
)  # fmt: skip
@click.option("--no-page", is_flag=True, help="Leave out the page at /.")
@click.option("--access-log", is_flag=True, help="Write a line for every request to stderr.")
@click.option("--no-verify", is_flag=True, help="Do not compare the files with their recorded hashes.")
@click.option("--require-signature", "signed_by", **SIGNED_BY)
def command(
    folder: Path,
    host: str,
    port: int,
    unix: Path | None,
    name: str | None,
    keys: tuple[str, ...],
    key_file: Path | None,
    engine: str | None,
    threads: int | None,
    adapters: tuple[str, ...],
    autoregressive: bool,
    body_bytes: int,
    origins: tuple[str, ...],
    image_hosts: tuple[str, ...],
    image_cache: int | None,
    grace: float,
    no_page: bool,
    access_log: bool,
    no_verify: bool,
    signed_by: Path | None,
    **options: Any,
) -> None:
    """Serve BUNDLE behind OpenAI's API. Needs the extra serve: pip install 'speccompile[serve]'.

    The address is the one line on stdout. It answers at once: /health says 503 until the bundle is open. On SIGTERM
    or Ctrl-C no more requests are taken, those that are there are finished within --grace, and the exit code is 0.

    Small requests are read in this process, and all with a long text or a new grammar in a process of their own, which
    ends at --read-seconds, --read-memory, or when its client leaves; the request then gets 400 with the limit's name.

    Requests share the batch slots of the bundle (cache.batch_size); those that find none free wait, and get 429 with
    Retry-After where too many do. Keys come from --api-key, --api-key-file and the environment variable
    SPECCOMPILE_API_KEY (several with commas between them); without any everybody is let in. /health, /metrics,
    /version, /openapi.json and the page need none. TLS is left to a proxy in front of it.

    --adapter NAME=FOLDER serves the target with a LoRA adapter as the model BUNDLE:NAME. The bundle needs slots for
    adapters, which the recipe's section adapters gives it.

    At / is a page to talk to the model in a browser. It loads nothing from elsewhere, asks for the API key where there
    is one, keeps it until its tab is closed, and keeps the conversation in that browser until it is cleared. --no-page
    leaves it out.

    \b
    Endpoints
      GET  /                                        the page
      POST /v1/chat/completions, /v1/completions    also as streams
      GET  /v1/models, /v1/models/NAME, /bundle     /bundle says what the model can do
      POST /tokenize, /detokenize
      GET  /health, /metrics, /version, /openapi.json

    \b
    Examples:
      speccompile serve build/demo
      speccompile serve build/demo --port 0 --api-key-file keys.txt
      curl localhost:8000/v1/completions -H 'Content-Type: application/json' \\
        -d '{"prompt": "def main(", "max_tokens": 64}'
    """
    from speccompile.bundle.reader import open_bundle
    from speccompile.runtime.adapters import read_named
    from speccompile.serving.http.app import Settings
    from speccompile.serving.http.image_urls import ImageHosts
    from speccompile.serving.http.keys import Keys
    from speccompile.serving.http.model import ServedModel
    from speccompile.serving.http.run import ListenAddress, listen, serve
    from speccompile.serving.scheduler import check_served

    named = read_named(adapters)
    manifest = open_bundle(folder, verify=False).manifest  # refuse an invalid bundle before listening
    check_served(manifest)
    model = ServedModel(name or manifest.name, scheduler_limits(options), read_limits(options), session_folder(options))
    settings = Settings(
        Keys(api_keys(keys, key_file)), body_bytes, origins, speculative=not autoregressive, page=not no_page,
        image_hosts=ImageHosts.of(image_hosts),
    )  # fmt: skip
    connections = connection_limits(options)
    listening, address = listen(ListenAddress(host, port, unix))

    def load() -> None:
        model.open(
            folder, engine=engine, threads=threads, verify=not no_verify, signed_by=signed_by, adapters=named,
            image_cache=image_cache,
        )  # fmt: skip
        LOGGER.info("serving %s on %s, batch size %d", model.name, address, manifest.batch_size)
        if settings.page and unix is None:
            LOGGER.info("open %s/ in a browser to talk to it", address)

    try:
        serve(
            model, settings, listening, load, announce=lambda: click.echo(address), grace=grace, access_log=access_log,
            limits=connections,
        )  # fmt: skip
    finally:
        if unix is not None:
            unix.unlink(missing_ok=True)


def _key_text(file: Path) -> str:
    """Return the text of a file of keys. Raise UsageError, which never shows a part of a key."""
    from speccompile.machine.plain_files import read_plain

    try:
        return read_plain(file, _KEY_FILE_BYTES).decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"--api-key-file {file}: {error.strerror}", hint="give a file with one key a line") from None
    except UnicodeDecodeError as error:
        raise UsageError(
            f"--api-key-file {file}: byte {error.start} is no UTF-8, expected text with one key a line",
            hint="save the keys as UTF-8",
        ) from None


def api_keys(given: tuple[str, ...], file: Path | None) -> tuple[str, ...]:
    """Return the API keys of options, file and environment. Raise UsageError for an empty key or a file without one."""
    from speccompile.serving.http.keys import read_keys

    read = () if file is None else read_keys(_key_text(file).splitlines())
    if file is not None and not read:
        raise UsageError(f"--api-key-file {file}: found no key, expected one a line", hint="write one, or leave it out")
    named = os.environ.get(KEYS, "")
    keys = (*given, *read, *(named.split(",") if named else ()))
    if not all(key.strip() for key in keys):
        raise UsageError("received an empty API key, expected at least one character", hint="leave it out")
    return tuple(key.strip() for key in keys)
