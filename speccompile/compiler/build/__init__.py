"""The build: from a plan to a proven bundle.

checkpoint -> probe -> trace -> neutral graph -> lowered graphs -> proof -> engines -> bundle

In: a `plan.Plan`. Out: a bundle folder, or one error and nothing left behind.
Every stage gets a record of its own inputs (`inputs` opens the plan), of which the keys of its cached steps are made.
Imported by `measure`, `train` and `cli`; imports every room of the compiler, and `recipe`.
"""

import shutil
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from speccompile.bundle.cache import BUILDS, FolderCache
from speccompile.bundle.manifest import Manifest, engine_files
from speccompile.bundle.writer import BundleWriter
from speccompile.compiler.build.bundle_proof import ProofSubject, measure_image_quality, prove_graphs_and_tokens
from speccompile.compiler.build.cached_steps import CachedSteps
from speccompile.compiler.build.calibration import is_calibrated
from speccompile.compiler.build.encoder_engine import build_encoders, encoder_files
from speccompile.compiler.build.inputs import StageInputs, open_plan, open_round
from speccompile.compiler.build.interrupts import Interrupts
from speccompile.compiler.build.lowered import lower_all
from speccompile.compiler.build.memory import settled_heap
from speccompile.compiler.build.metadata import Description, make_lock, make_manifest
from speccompile.compiler.build.prefixes import add_prefixes, prefix_token_ids
from speccompile.compiler.build.proposals import put_index
from speccompile.compiler.build.quality import quality_texts
from speccompile.compiler.build.tensorrt import build_engines, check_builders, combined_error, longest_text
from speccompile.compiler.build.token_proof import proof_prompts
from speccompile.compiler.build.traced_graphs import trace_graphs
from speccompile.compiler.build.writer import build_writer
from speccompile.compiler.checkpoints.change_guard import ChangeGuard
from speccompile.compiler.lower.files import GRAPHS, delete_unreferenced
from speccompile.compiler.models.tokenizer import warn_without_tokenizer, write_tokenizer
from speccompile.errors import BuildError
from speccompile.plan.head import HeadPlan
from speccompile.plan.plan import ModelPlan, Plan
from speccompile.progress import log_step
from speccompile.recipe.load import FILE_NAME


def build(
    plan: Plan,
    output: Path,
    *,
    prove: bool = True,
    dump_graphs: Path | None = None,
    reduce: bool = False,
    use_build_cache: bool = True,
    recipe: str | None = None,
    measure_pictures: bool = False,
) -> Path:
    """Build the bundle that `plan` describes into `output` and return its folder.

    prove=False skips the proof, and the bundle says so. dump_graphs: a folder for the neutral and lowered graphs.
    reduce: write the smallest graph that fails in the same way, for each that TensorRT refuses, to OUTPUT.reduced.
    use_build_cache: see `build.cached_steps`. recipe: text of a recipe that was made for the build, kept
    in the bundle as recipe.yaml. measure_pictures: measure the quality behind pictures also without a proof, if the
    target sees. Raise PromptError for a prompt of the proof or a held-out text of a wrong length, before the work;
    ProofError, and keep nothing, when the bundle does not give the reference's tokens; CheckpointError
    for files that change during the build; EngineError for engines that could not be built, after all other engines.
    """
    _make_folder(dump_graphs)
    stages = open_plan(plan)
    deferred = check_builders(stages.engines)
    steps = CachedSteps(FolderCache.named(BUILDS) if use_build_cache else None)
    with settled_heap(), Interrupts() as interrupts, BundleWriter(output) as writer, ExitStack() as stack:
        checkpoints, folder = [stack.enter_context(each) for each in _checkpoints(plan)], writer.folder
        _write_texts(plan, folder)
        build_writer(plan, folder, partial(build, prove=prove, use_build_cache=use_build_cache))
        prefixes = prefix_token_ids(plan.prefixes, folder, plan.max_length)
        prompts = proof_prompts(stages.prompts, folder) if prove or is_calibrated(plan.engines) else []
        texts = quality_texts(stages.texts, folder, prompts) if prove else []
        parts = trace_graphs(stages.trace, folder, steps, prove=prove)
        encoder, encoded = build_encoders(stages.encoder, longest_text(stages.engines), folder, steps, prove=prove)
        _check(checkpoints, interrupts)
        lowered = lower_all(stages.lower, parts, folder, prompts, steps)
        _dump(folder / GRAPHS, dump_graphs)  # also of a build whose proof fails: those are the graphs to look at
        _check(checkpoints, interrupts)
        manifest = make_manifest(open_round(plan), Description.of(plan), parts, folder)
        subject = ProofSubject(stages, parts, lowered, manifest, folder, prompts, texts, steps)
        proof = prove_graphs_and_tokens(subject, encoded) if prove else _unproven(subject, measure_pictures)
        _check(checkpoints, interrupts)
        reduced = Path(f"{output}.reduced") if reduce else None
        built = build_engines(stages.engines, lowered, deferred, folder, reduced, manifest.catch_up, encoder)
        _check(checkpoints, interrupts)
        if built.entries:
            manifest = replace(manifest, engines=tuple(built.entries))
            _write(writer, plan, stages, manifest, proof, prefixes, prompts if prove else [], recipe)
    if built.failures:
        raise combined_error(built.failures, built.entries, output)
    return output


def _unproven(subject: ProofSubject, measure_pictures: bool) -> dict[str, Any]:
    """Return the content of proof.json without a proof."""
    if not measure_pictures or subject.stages.encoder is None:
        return {"proven": False}
    return {"proven": False, "images": measure_image_quality(subject)}


def _write_texts(plan: Plan, folder: Path) -> None:
    """Write the tokenizer and the index of texts into the bundle."""
    if plan.target.facts.tokenizer:
        write_tokenizer(plan.target.folder, folder)
    else:
        warn_without_tokenizer(plan.target.folder)
    put_index(plan.drafter.retrieval, plan.drafter.tree, folder)


def _write(
    writer: BundleWriter,
    plan: Plan,
    stages: StageInputs,
    manifest: Manifest,
    proof: dict[str, Any],
    prefixes: dict[str, list[int]],
    prompts: list[list[int]],
    recipe: str | None,
) -> None:
    """Write the recipe, manifest, lock, proof and hashes, and remove files that no engine reads. prompts: of the
    prefixes' proof, none without a proof."""
    with log_step("writing the bundle"):
        read = {file for entry in manifest.engines for file in engine_files(entry)}
        delete_unreferenced(writer.folder, read | encoder_files(stages.encoder, manifest.engines))
        if recipe is not None:
            (writer.folder / FILE_NAME).write_text(recipe, encoding="utf-8")
        lock = make_lock(plan)
        if prefixes:
            writer.stage(manifest, lock, proof)  # a prefix names the hashes of what computes it
            most = plan.prove.max_new_tokens
            proof["prefixes"] = add_prefixes(prefixes, writer.folder, manifest.engines, prompts, most)
        writer.finish(manifest, lock, proof)


def _checkpoints(plan: Plan) -> list[ChangeGuard]:
    """Return guards over the files of all models, as they are at the beginning of the build."""
    models: list[ModelPlan | HeadPlan] = [plan.target, *plan.drafter.models]
    models += [plan.drafter.head] if plan.drafter.head else []
    return [ChangeGuard(model.folder, model.files) for model in models]


def _check(checkpoints: list[ChangeGuard], interrupts: Interrupts) -> None:
    interrupts.check()
    for each in checkpoints:
        each.check()


def _dump(graphs: Path, folder: Path | None) -> None:
    """Copy the graphs into the folder of --dump-graphs, if it is given."""
    if folder is not None:
        shutil.copytree(graphs, folder, dirs_exist_ok=True)


def _make_folder(folder: Path | None) -> None:
    """Make the folder of --dump-graphs, if it is given. Raise BuildError now rather than after the work."""
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BuildError(
            f"the graphs cannot be dumped to {folder}: {error.strerror}",
            hint="give another --dump-graphs (dump_graphs=..)",
        ) from error
