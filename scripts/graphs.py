#!/usr/bin/env python3
"""Compare the graphs of recipes as this checkout builds them with those of another one.

    scripts/graphs.py TREE [RECIPE ..]    TREE: another checkout, such as one of `git worktree add TREE REVISION`

Each recipe of recipes/, or each given folder, is built twice without a proof and without the cache, and its neutral and
lowered graphs are kept. stdout gets a line for each graph: equal, equal but for names, or the nodes and weights that
differ. The exit code is 1 if any differs. A checkout without compiled kernels uses those of this one.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import onnx

ROOT = Path(__file__).resolve().parents[1]


def build(tree: Path, recipe: Path, folder: Path) -> Path:
    """Build a recipe with the code of a checkout, and return the folder of its graphs. Raise CalledProcessError."""
    graphs = folder / "graphs"
    command = [sys.executable, "-m", "speccompile", "-q", "build", str(recipe), "-o", str(folder / "bundle")]
    command += ["--skip-prove", "--no-cache", "--dump-graphs", str(graphs)]
    subprocess.run(command, check=True, cwd=tree, stdout=subprocess.DEVNULL, env=os.environ | {"PYTHONPATH": str(tree)})
    shutil.rmtree(folder / "bundle")
    return graphs


def graphs_of(owner: Any) -> Iterator[Any]:
    """Yield a graph or function, and all graphs below it."""
    yield owner
    for node in owner.node:
        for attribute in node.attribute:
            for graph in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
                yield from graphs_of(graph)


def rename(model: onnx.ModelProto) -> None:
    """Number all values of a model in the order in which they are met: graphs that differ in names become equal."""
    names: dict[str, str] = {"": ""}

    def numbered(old: Sequence[str]) -> list[str]:
        return [names.setdefault(name, str(len(names))) for name in old]

    for owner in (model.graph, *model.functions):
        for graph in graphs_of(owner):
            is_graph = isinstance(graph, onnx.GraphProto)
            for value in (*graph.input, *graph.output, *graph.initializer) if is_graph else ():
                value.name = numbered([value.name])[0]
            for number, node in enumerate(graph.node):
                node.name, node.input[:], node.output[:] = str(number), numbered(node.input), numbered(node.output)


def drop_unused_functions(model: onnx.ModelProto) -> None:
    """Remove the functions that no node of the graph calls, directly or through other functions."""
    functions = {(each.domain, each.name): each for each in model.functions}
    used, waiting = set[tuple[str, str]](), list[Any]([model.graph])
    while waiting:
        for graph in graphs_of(waiting.pop()):
            called = {(node.domain, node.op_type) for node in graph.node} & functions.keys() - used
            used |= called
            waiting += [functions[name] for name in called]
    del model.functions[:]
    model.functions.extend(functions[name] for name in sorted(used))


def plain(file: Path) -> onnx.ModelProto:
    """Read a graph, without unused functions and without what says where and by what it was written."""
    model = onnx.load(file, load_external_data=False)
    drop_unused_functions(model)
    model.ClearField("producer_version")
    model.ClearField("metadata_props")
    for owner in (model.graph, *model.functions):
        for graph in graphs_of(owner):
            for each in (graph, *graph.node):
                each.ClearField("doc_string")
                each.ClearField("metadata_props")
            graph.ClearField("value_info")
            for weight in graph.initializer if isinstance(graph, onnx.GraphProto) else ():
                weight.ClearField("external_data")
    return model


def digest(model: onnx.ModelProto) -> str:
    """Return a hash of a model."""
    return hashlib.blake2b(model.SerializeToString(deterministic=True), digest_size=16).hexdigest()


def contents(model: onnx.ModelProto) -> Counter[str]:
    """Count a model's inputs, outputs, weights and nodes, those of functions with the function's name."""
    found: Counter[str] = Counter()
    for owner in (model.graph, *model.functions):
        where = "" if owner is model.graph else f" in {owner.name}"
        for graph in graphs_of(owner):
            found.update(f"{node.domain or 'onnx'}::{node.op_type}{where}" for node in graph.node)
    for kind in ("input", "output"):
        found.update(f"{kind} {value.name}" for value in getattr(model.graph, kind))
    found.update(f"weight {onnx.TensorProto.DataType.Name(w.data_type)}{list(w.dims)}" for w in model.graph.initializer)
    return found


def compare(ours: Path, theirs: Path) -> str:
    """Return what differs between two graphs: "equal", "equal but for names", or the difference in words."""
    if not (ours.exists() and theirs.exists()):
        return "only here" if ours.exists() else "only there"
    both = [plain(file) for file in (ours, theirs)]
    if digest(both[0]) == digest(both[1]):
        return "equal"
    here, there = map(contents, both)
    for model in both:
        rename(model)
    if digest(both[0]) == digest(both[1]):
        return "equal but for names"
    changes = [f"{here[name] - there[name]:+d} {name}" for name in sorted(here | there) if here[name] != there[name]]
    return "differs: " + (", ".join(changes) or "the same nodes and weights, in another order or with other attributes")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", type=Path)
    parser.add_argument("recipes", type=Path, nargs="*", default=sorted((ROOT / "recipes").glob("*/recipe.yaml")))
    args = parser.parse_args()
    tree, differs = args.tree.resolve(), False
    native = ROOT / "speccompile" / "native"
    for file in native.glob("libspeccompile_kernels.*"):  # without them other graphs would be lowered
        if not (tree / file.relative_to(ROOT)).exists():
            shutil.copy(file, tree / file.relative_to(ROOT))
    for recipe in args.recipes:
        with tempfile.TemporaryDirectory() as scratch:
            ours, theirs = (build(each, recipe.resolve(), Path(scratch, str(each == tree))) for each in (ROOT, tree))
            names = {file.relative_to(folder) for folder in (ours, theirs) for file in folder.rglob("*.onnx")}
            for name in sorted(names):
                found = compare(ours / name, theirs / name)
                differs |= not found.startswith("equal")
                print(f"{recipe.parent.name}/{name}: {found}", flush=True)
    return int(differs)


if __name__ == "__main__":
    sys.exit(main())
