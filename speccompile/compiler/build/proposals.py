"""Drafts from the host during a build: the bundle's index, and the proposer of the proof."""

import os
import shutil
from pathlib import Path
from typing import Any

from speccompile.bundle.manifest import Manifest
from speccompile.compiler.prove.drafts import HINT
from speccompile.compiler.prove.repeats import RepeatProposer
from speccompile.drafters import module_of
from speccompile.errors import ProofError
from speccompile.index.files import HEADER, read_header
from speccompile.index.retrieval import RetrievalPolicy, RetrievalProposer, write_policy
from speccompile.plan.plan import RetrievalPlan, TreePlan
from speccompile.progress import log_step
from speccompile.runtime import Bundle
from speccompile.runtime.rounds.host_drafts import (
    GATE,
    INDEX,
    WRITER,
    Proposer,
    find_proposer,
    gate_config,
    needs_proposer,
)

_TEXTS, _READ = 32, 1 << 26
"""Number of texts for which the proof searches the corpus; one at least, and not more than read so many tokens."""


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


def prove_index(folder: Path, manifest: Manifest) -> list[dict[str, Any]]:
    """Compare what the index of the bundle `folder` proposes with a search through its corpus, and return a row of the
    proof; none without an index. Raise ProofError."""
    if not (folder / INDEX).is_dir():
        return []
    with log_step("proving the index"):
        proposer, compared = find_proposer(folder, manifest, None), 0
        assert isinstance(proposer, RetrievalProposer)
        corpus = module_of(GATE, "reference").Corpus(folder / INDEX, proposer.policy)
        for text in corpus.texts(max(1, min(_TEXTS, _READ // max(1, proposer.index.header.tokens)))):
            got, expected = proposer.propose(text), corpus.propose(text, proposer.drafts, proposer.depth)
            if got != expected:
                raise ProofError(
                    f"index: drafts {got[0]} at the parents {got[1]} behind {text}, the method's reference drafts "
                    f"{expected[0]} at {expected[1]}",
                    hint=HINT,
                )
            compared += len(got[0])
    return [{"graph": "index", "level": "index against its corpus", "values": compared, "tolerance": 0.0}]
