"""The build: from a plan to a proven bundle.

checkpoint -> probe -> trace -> neutral graph -> lowered graphs -> proof -> bundle
"""

import shutil
from pathlib import Path
from typing import Any

from speccompile.builder.interrupts import Interrupts
from speccompile.builder.parts import compile_parts, lower_part
from speccompile.builder.records import make_lock, make_manifest
from speccompile.builder.token_proof import proof_prompts, prove_tokens
from speccompile.bundle.writer import BundleWriter
from speccompile.errors import BuildError
from speccompile.lower.files import GRAPHS, neutral_file
from speccompile.models.tokenizer import write_tokenizer
from speccompile.progress import step
from speccompile.recipe import Plan


def build(plan: Plan, output: Path, *, prove: bool = True, dump_graphs: Path | None = None) -> Path:
    """Build the bundle that `plan` describes into `output` and return its folder.

    prove=False leaves the proof out, and the bundle says so. dump_graphs: a folder for the neutral and lowered graphs.
    Raises PromptError for a prompt of the proof that is too long, before the work; ProofError, and keeps nothing, when
    the bundle does not give the reference's tokens.
    """
    if dump_graphs:
        _make_folder(dump_graphs)
    with Interrupts() as interrupts, BundleWriter(output) as writer:
        folder = writer.folder
        if plan.target.facts.tokenizer:
            write_tokenizer(plan.target.folder, folder)
        prompts = proof_prompts(plan, folder) if prove else []
        parts = compile_parts(plan, folder, prove)
        interrupts.check()
        proofs = [row for part in parts for row in part.proofs]
        for part in parts:
            proofs += lower_part(plan, part, folder, prove)
            interrupts.check()
        if dump_graphs:
            shutil.copytree(folder / GRAPHS, dump_graphs, dirs_exist_ok=True)
        for part in parts:
            (folder / neutral_file(part.graph)).unlink()
        manifest = make_manifest(plan, parts, folder)
        proof: dict[str, Any] = {"proven": prove}
        if prove:
            proof |= {"graphs": proofs, "engines": prove_tokens(plan, manifest, folder, prompts)}
        interrupts.check()
        with step("writing the bundle"):
            writer.finish(manifest, make_lock(plan), proof)
    return output


def _make_folder(folder: Path) -> None:
    """Raises BuildError now rather than after the work."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BuildError(
            f"the graphs cannot be dumped to {folder}: {error.strerror}", hint="give another --dump-graphs"
        ) from error
