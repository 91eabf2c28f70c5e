"""Metadata of a bundle: the manifest, and the lock of its inputs."""

from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from speccompile import __version__, contract
from speccompile.bundle.file_hashes import cached_file_hash
from speccompile.bundle.manifest import FORMAT, TOKENIZER, Manifest
from speccompile.compiler.build.cached_steps import PACKAGES
from speccompile.compiler.build.lowered import round_graphs
from speccompile.compiler.build.round_plan import RoundPlan
from speccompile.compiler.build.traced_graphs import TracedGraph
from speccompile.index.files import HEADER, read_header
from speccompile.plan.head import HeadPlan
from speccompile.plan.plan import ModelPlan, Plan, RetrievalPlan


@dataclass(frozen=True)
class Description:
    """Properties of a bundle beside its round. plan: all decisions, for people. source: the manifest's section."""

    name: str
    eos_token_ids: tuple[int, ...]
    plan: dict[str, Any]
    source: dict[str, Any] | None = None

    @classmethod
    def of(cls, plan: Plan) -> "Description":
        return cls(
            plan.name, plan.target.facts.eos_token_ids, plan.to_json(), plan.source.to_json() if plan.source else None
        )


def make_manifest(round_plan: RoundPlan, description: Description, parts: list[TracedGraph], folder: Path) -> Manifest:
    """Return the manifest of the bundle in `folder`, before its engines are built."""
    drafter = round_plan.drafter
    return Manifest(
        format=FORMAT,
        contract=contract.VERSION,
        speccompile=__version__,
        name=description.name,
        exact=round_plan.verify.exact,
        decoding=round_plan.decoding,
        method=round_plan.verify.method,
        batch_size=round_plan.batch_size,
        max_length=round_plan.max_length,
        prefill_chunk=round_plan.prefill_chunk,
        tokens=drafter.tokens,
        tree=round_plan.tree_kind,
        depth=drafter.tree.depth if drafter.tokens else 0,
        sample=drafter.sample,
        catch_up=max(part.catch_up for part in parts),
        vocabulary_size=round_plan.target.vocabulary_size,
        eos_token_ids=description.eos_token_ids,
        tokenizer=(folder / TOKENIZER).exists(),
        graphs=round_graphs(round_plan.graphs, parts),
        engines=(),
        plan=description.plan,
        source=description.source,
        rings=parts[0].rings,
    )


def make_lock(plan: Plan) -> dict[str, Any]:
    """Return the lock: the hash of every input file and the version of every package involved."""
    drafters = plan.drafter.models
    head = plan.drafter.head
    names = ["drafter"] if len(drafters) == 1 else [f"drafter {number}" for number in range(1, len(drafters) + 1)]
    models: dict[str, ModelPlan | HeadPlan] = {"target": plan.target, **dict(zip(names, drafters, strict=True))}
    models |= {"drafter": head} if head else {}
    inputs = {
        role: {
            "reference": model.reference,
            "commit": model.commit,
            "files": {file.as_posix(): cached_file_hash(model.folder / file) for file in model.files},
        }
        for role, model in models.items()
    }
    inputs |= _index_lock(plan.drafter.retrieval)
    return {"inputs": inputs, "versions": {"speccompile": __version__} | {name: version(name) for name in PACKAGES}}


def _index_lock(retrieval: RetrievalPlan | None) -> dict[str, Any]:
    if retrieval is None or retrieval.folder is None:
        return {}
    names = [HEADER, *read_header(retrieval.folder).files]
    files = {name: cached_file_hash(retrieval.folder / name) for name in names}
    return {"index": {"reference": retrieval.reference, "commit": None, "files": files}}
