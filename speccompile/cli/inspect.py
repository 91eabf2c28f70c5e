"""`speccompile inspect`: show the contents of a bundle."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from speccompile.bundle.buffers import Buffer, buffers
from speccompile.bundle.caches import context_of, describe_caches
from speccompile.cli.heads import accuracy_rows, hit_title
from speccompile.cli.options import CACHE_GB, SIGNED_BY
from speccompile.cli.quality_rows import acceptance_rows, quality_rows, quality_title
from speccompile.cli.table_output import columns
from speccompile.contract import ADAPTER_PREFIX, BATCH, DTYPES
from speccompile.errors import BundleError

if TYPE_CHECKING:
    from speccompile.bundle import EngineEntry, Manifest, OpenedBundle
    from speccompile.contract import Graph, Tensor
    from speccompile.runtime.window_invariance import WindowInvariance


@click.command("inspect")
@click.argument("folder", metavar="BUNDLE", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--no-verify", is_flag=True, help="Do not compare the files with their recorded hashes.")
@click.option("--require-signature", "signed_by", **SIGNED_BY)
@click.option("--cache-gb", **CACHE_GB)
def command(folder: Path, as_json: bool, no_verify: bool, signed_by: Path | None, cache_gb: float) -> None:
    """Show what BUNDLE holds: engines, graphs, buffers, files, the inputs it was built from, what its precisions cost,
    its proof.

    \b
    The JSON object has the keys
      digest    BLAKE3 of the list of files: the bundle's identity
      verified  whether the files were compared with their hashes
      manifest  the content of manifest.json
      buffers   [{name, dtype, shape, role, bytes}] of the graphs as traced, in
                float32; an engine's own are in manifest.engines[].graphs.
                bytes is a number, or a text like "8*window" where a width
                varies from run to run
      files     {path: {blake3, bytes}}
      lock      the content of lock.json
      prefixes  {engine: [name]} of the prefixes that it ships
      context   {bytes_per_token, memory, tokens} of the caches of the first
                engine: bytes of a token in all layers, --cache-gb in bytes,
                and tokens of the longest text that fits; null: any does
      here      {engine: {exact, reason, widths, differing, largest}}: whether
                windows of these widths give the logits of single tokens, bit
                for bit, on this processor; null where that was not tried yet,
                as it is when the engine is opened
      proof     the content of proof.json

    \b
    What a precision costs is measured on the texts of prove.held_out, or on
    the prompts. proof.quality, where the recipe has either, has the keys
      file        as the recipe names it
      texts       how many; where drafts are a tree the first ones alone
      tokens      how many of theirs were predicted from those before them
      kl_tokens   how many of those kl_divergence is a mean over
      perplexity  of the target in transformers, eager, float32
      cache       {dtype, perplexity, same_argmax, kl_divergence} of the same
                  with quantized keys and values, where the bundle has them
      cache_acceptance  [{engines, quantized, float}], acceptance by depth with
                  the bundle's caches and with float caches: {rounds, drafted,
                  tried, accepted}; tried, accepted: at each depth, drafts
                  whose predecessors were accepted, and accepted ones
      engines     [{engines, executed_by, precision, block_size, perplexity,
                  same_argmax, kl_divergence}], one for each target:
                  perplexity exp of the mean negative log-likelihood;
                  same_argmax share of tokens with the best token of
                  transformers; kl_divergence from transformers, in nats

    \b
    Of a drafter that was made for its target, proof.drafter says how often it
    is right on what the target wrote itself; its keys are
      positions  places in these texts at which it drafted
      hit_rate   share of right drafts at depth 1, 2, .., each after the
                 target's own tokens
      control    the same with features shifted by one token
      readings   {words: hit_rate} of other readings of its files
      better     those of them that fit clearly better

    \b
    Examples:
      speccompile inspect build/demo
      speccompile inspect build/demo --json | jq .manifest.exact
    """
    from speccompile.bundle import open_bundle

    bundle = open_bundle(folder, verify=not no_verify, signed_by=signed_by)
    if as_json:
        click.echo(json.dumps(_as_object(bundle, cache_gb, verified=not no_verify), indent=2, ensure_ascii=False))
    else:
        click.echo("\n".join(_lines(bundle, cache_gb, verified=not no_verify)))


def size_in_bytes(buffer: Buffer, rows: int = 1) -> int | str:
    """Return the bytes of a buffer with batch size `rows`, or a product such as "4*window" with a dynamic width. Raise
    BundleError for a dtype of unknown size."""
    if buffer.dtype not in DTYPES:
        known = ", ".join(DTYPES)
        raise BundleError(
            f"manifest.json: buffer {buffer.name!r} has dtype {buffer.dtype!r}, expected one of {known}",
            hint="upgrade speccompile",
        )
    fixed, widths = DTYPES[buffer.dtype].bytes, []
    for size in buffer.shape:
        if not isinstance(size, str) or size == BATCH:
            fixed *= rows if size == BATCH else int(size)
        else:
            widths.append(f"({size})" if "+" in size else size)
    return "*".join([str(fixed), *widths]) if widths else fixed


def _as_object(bundle: "OpenedBundle", cache_gb: float, *, verified: bool) -> dict[str, Any]:
    from speccompile.runtime.shipped_prefixes import prefix_names

    return {
        "digest": bundle.hashes.digest,
        "verified": verified,
        "manifest": bundle.manifest.to_json(),
        "buffers": [
            asdict(each) | {"bytes": size_in_bytes(each, bundle.manifest.batch_size)}
            for each in buffers(bundle.manifest.graphs)
        ],
        "files": {path: {"blake3": file.blake3, "bytes": file.size} for path, file in bundle.hashes.files.items()},
        "lock": bundle.lock,
        "prefixes": prefix_names(bundle),
        "context": context_of(bundle.manifest, cache_gb),
        "here": {name: found and _exactness(found) for name, found in _found_here(bundle).items()},
        "proof": bundle.proof,
    }


def _found_here(bundle: "OpenedBundle") -> dict[str, "WindowInvariance | None"]:
    """Return CPU engine -> cached window invariance on this machine, None if unknown."""
    from speccompile.machine.system import available_cores
    from speccompile.runtime.window_invariance import cached_invariance, engine_key

    engines = [engine for engine in bundle.manifest.engines if engine.provider == "cpu"]
    keys = {engine.name: engine_key(bundle.folder, engine, available_cores()) for engine in engines}
    return {name: cached_invariance(key) for name, key in keys.items()}


def _exactness(found: "WindowInvariance") -> dict[str, Any]:
    return {"exact": found.exact, "reason": found.reason} | asdict(found)


def _lines(bundle: "OpenedBundle", cache_gb: float, *, verified: bool) -> Iterator[str]:
    manifest = bundle.manifest
    yield from columns(facts(bundle, cache_gb, verified=verified))
    yield from _section("engines", [_engine_row(engine) for engine in manifest.engines])
    yield from _section("on this processor", [_here_row(*found) for found in _found_here(bundle).items()])
    for engine in manifest.engines:
        if engine.deferred and engine.build:
            yield from _section(f"engine {engine.name}, to be built with", _flat(engine.build.settings))
        elif engine.build:
            yield from _section(f"engine {engine.name}, as built", _flat(engine.build.reports))
    if prefixes := bundle.proof.get("prefixes"):
        yield from _section("prefixes", list(map(_prefix_row, prefixes)))
    for graph in manifest.graphs:
        yield from _section(f"graph {graph.name}", _tensor_rows(graph))
    yield from _section("buffers, before an engine's precision", _buffer_rows(manifest))
    files = [(path, _size(file.size), file.blake3) for path, file in bundle.hashes.files.items()]
    yield from _section("files, with BLAKE3", files)
    yield from _section("built from (lock.json)", _flat(bundle.lock))
    proof = dict(bundle.proof)
    if quality := proof.pop("quality", None):
        yield from _section(quality_title(quality), quality_rows(quality))
        if compared := acceptance_rows(quality):
            yield from _section("drafts accepted with quantized caches, and with float caches", compared)
    if hits := proof.pop("drafter", None):
        yield from _section(hit_title(hits), accuracy_rows(hits))
    yield from _section("proof (proof.json)", _proof_rows(proof))


def facts(bundle: "OpenedBundle", cache_gb: float = 1, *, verified: bool) -> list[tuple[str, str]]:
    """Return (title, text) about the bundle as a whole. cache_gb: memory for caches, in GB."""
    from speccompile.runtime.images.reader import image_settings

    manifest: Manifest = bundle.manifest
    return [
        ("name", manifest.name),
        ("decoding", manifest.decoding),
        ("method", _method(manifest)),
        ("exact", "yes" if manifest.exact else "no: approximate, speculation may change the output"),
        ("drafts", _drafts(manifest)),
        ("batch size", str(manifest.batch_size)),
        ("max length", f"{manifest.max_length} tokens, prefilled {manifest.prefill_chunk} at a time"),
        ("caches", describe_caches(manifest, cache_gb)),
        *([("adapters", _adapters(manifest))] if "adapters" in manifest.plan else []),
        *([("pictures", seen.describe())] if (seen := image_settings(manifest)) is not None else []),
        ("vocabulary", f"{manifest.vocabulary_size}, end tokens {_short(list(manifest.eos_token_ids))}"),
        ("tokenizer", "yes" if manifest.tokenizer else "no: token ids only"),
        ("versions", f"format {manifest.format}, contract {manifest.contract}, speccompile {manifest.speccompile}"),
        ("digest", f"{bundle.hashes.digest} ({'verified' if verified else 'not verified'})"),
    ]


def _adapters(manifest: "Manifest") -> str:
    """Describe the slots for adapters, with their bytes in the first engine."""
    slots = manifest.plan["adapters"]
    tensors = {each.name: each for graph in manifest.engines[0].graphs for each in graph.inputs}
    size = sum(
        DTYPES[each.dtype].bytes * prod(each.concrete_shape({}))
        for name, each in tensors.items()
        if name.startswith(ADAPTER_PREFIX)
    )
    return f"{slots['slots']} slots of rank {slots['rank']} for {', '.join(slots['modules'])}, {_size(size)}"


def _method(manifest: "Manifest") -> str:
    """Return the acceptance rule and its parameters."""
    parameters = ", ".join(f"{name} {value}" for name, value in manifest.plan["verify"]["parameters"].items())
    return f"{manifest.method} ({parameters})" if parameters else manifest.method


def _drafts(manifest: "Manifest") -> str:
    if not manifest.tokens:
        return "none"
    tree = "a chain" if manifest.tree == "chain" else f"a {manifest.tree} tree of depth {manifest.depth}"
    found = f"{manifest.tokens} a round, {tree}, {'drawn' if manifest.sample else 'the best'}"
    return "; ".join([found, *_looked_up(manifest.plan.get("drafter", {}))])


def _looked_up(drafter: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lookups of a cascade: before the drafter's passes, after its drafts, and instead of them."""
    if inner := drafter.get("inner"):
        yield f"{inner['kind']} drafts {inner['tokens']} for each of the drafter's {inner['passes']} passes"
    cascade = drafter.get("cascade") or {}
    if then := cascade.get("then"):
        yield f"{then['kind']} drafts {then['tokens']} behind the drafter's"
    if gate := cascade.get("gate"):
        yield f"{gate['kind']} drafts {gate['tokens']} in their place where it matches {gate['match']} tokens or more"


def _here_row(engine: str, found: "WindowInvariance | None") -> tuple[str, ...]:
    if found is None:
        return (
            engine,
            "not tried yet",
            "whether windows of several tokens give the same logits: `speccompile doctor BUNDLE`",
        )
    return engine, "exact" if found.exact else "NOT EXACT, speculation may change tokens", found.reason


def _engine_row(engine: "EngineEntry") -> tuple[str, ...]:
    where = f"compute capability {engine.compute_capability}" if engine.compute_capability else engine.provider
    held = f"deferred: {engine.deferred}" if engine.deferred else " ".join(_texts(engine.files))
    return engine.name, engine.backend, where, " ".join(_texts(engine.precision)), held


def _prefix_row(prefix: Mapping[str, Any]) -> tuple[str, ...]:
    proof = f"{prefix['continuations']} continuations equal those without it" if prefix["continuations"] else "unproven"
    return prefix["name"], prefix["engine"], f"{prefix['tokens']} tokens", proof


def _tensor_rows(graph: "Graph") -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("in", *_tensor_cells(tensor), tensor.role) for tensor in graph.inputs]
    for tensor in graph.outputs:
        read = graph.aliases.get(tensor.name)
        rows.append(("out", *_tensor_cells(tensor), f"updates {read} in place" if read else tensor.role))
    return rows


def _tensor_cells(tensor: "Tensor | Buffer") -> tuple[str, str, str]:
    return tensor.name, tensor.dtype, f"[{', '.join(map(str, tensor.shape))}]"


def _buffer_rows(manifest: "Manifest") -> list[tuple[str, ...]]:
    """Return a row per buffer, then the fixed sizes of each engine, whose caches may have a narrower dtype."""
    batch = manifest.batch_size
    rows: list[tuple[str, ...]] = [
        (*_tensor_cells(buffer), _size(size_in_bytes(buffer, batch))) for buffer in buffers(manifest.graphs)
    ]
    fixed = ((each.name, _fixed_bytes(each.graphs, batch)) for each in manifest.engines)
    return rows + [(f"fixed sizes, {name}", "", "", _size(size)) for name, size in fixed]


def _fixed_bytes(graphs: Sequence["Graph"], rows: int) -> int:
    return sum(size for buffer in buffers(graphs) if isinstance(size := size_in_bytes(buffer, rows), int))


def _proof_rows(proof: dict[str, Any]) -> list[tuple[str, str]]:
    """Return a row for each compared graph and engine."""
    rows: list[tuple[str, str]] = []
    for key, found in proof.items():
        if isinstance(found, list) and all(isinstance(each, dict) for each in found):
            rows += [(key, ", ".join(f"{name} {value}" for name, value in _flat(each))) for each in found]
        else:
            rows += _flat(found, key)
    return rows


def _size(size: int | str) -> str:
    if isinstance(size, str) or size < 10_000:
        return f"{size} bytes"
    return f"{size / 1e6:.2f} MB"


def _texts(values: dict[str, str]) -> list[str]:
    return [f"{key}={value}" for key, value in values.items()]


def _flat(data: object, path: str = "") -> list[tuple[str, str]]:
    """Return nested objects as rows of (dotted key, value)."""
    if not isinstance(data, dict) or not data:
        return [(path or "empty", _short(data))]
    return [row for key, value in data.items() for row in _flat(value, f"{path}.{key}" if path else key)]


def _short(data: object) -> str:
    if isinstance(data, list):
        plain = len(data) <= 8 and not any(isinstance(item, dict) for item in data)
        return ", ".join(map(str, data)) or "none" if plain else f"{len(data)} entries"
    return data if isinstance(data, str) else json.dumps(data)


def _section(title: str, rows: Sequence[tuple[str, ...]]) -> list[str]:
    return ["", title, *(f"  {line}" for line in columns(rows))]
