"""Drafts from the host during a build: the bundle's index, and the proposer of the proof."""

import os
import shutil
from pathlib import Path

from speccompile.bundle.manifest import Manifest
from speccompile.compiler.prove.repeats import RepeatProposer
from speccompile.index.files import HEADER, read_header
from speccompile.index.retrieval import RetrievalPolicy, write_policy
from speccompile.plan.plan import RetrievalPlan, TreePlan
from speccompile.progress import log_step
from speccompile.runtime import Bundle
from speccompile.runtime.rounds.host_drafts import INDEX, WRITER, Proposer, find_proposer, gate_config, needs_proposer


def put_index(retrieval: RetrievalPlan | None, tree: TreePlan, folder: Path) -> None:
    """Put the recipe's index, if it has one, into the bundle `folder`: hard-linked if possible, else copied. tree: of
    the drafts.

    Raise BundleError for an index that has changed since it was built.
    """
    if retrieval is None or retrieval.folder is None or retrieval.asked is None:
        return
    with log_step("putting the index into the bundle"):
        header, inside = read_header(retrieval.folder, verify=True), folder / INDEX
        inside.mkdir()
        for name in (HEADER, *header.files):
            try:
                os.link(retrieval.folder / name, inside / name)
            except OSError:  # another filesystem, or one without hard links
                shutil.copyfile(retrieval.folder / name, inside / name)
        write_policy(
            inside, RetrievalPolicy(*retrieval.asked, branching=1 if tree.kind == "chain" else tree.top_k or 0)
        )


def proof_proposer(folder: Path, manifest: Manifest) -> Proposer | None:
    """Return the host's proposer for the proof of the graphs in `folder`, alone or through a gate: the bundle's index;
    the model that writes texts;
    without one (a user's proposer, or the small model of the distribution proof) a proposer that repeats the text. None
    if only graphs draft."""
    if not needs_proposer(manifest.graphs, manifest.tokens) and not gate_config(manifest):
        return None
    if (folder / WRITER).is_dir():
        return Bundle.open_writer(folder, manifest.tokens)
    given = (
        None if (folder / INDEX).is_dir() else RepeatProposer(manifest.tokens, manifest.depth, manifest.tree == "chain")
    )
    return find_proposer(folder, manifest, given)
