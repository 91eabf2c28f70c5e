"""Drafters over tiny models of the zoo: traced, run over a script of windows by ONNX Runtime, and their teachers."""

from dataclasses import dataclass
from pathlib import Path

from transformers import PreTrainedModel

from speccompile.compiler.build.traced_graphs import neutral_engine
from speccompile.compiler.lower.export import Exported, export_draft
from speccompile.compiler.lower.files import neutral_file, write_neutral
from speccompile.compiler.models.probe import probe
from speccompile.compiler.prove.graphs import EAGER
from speccompile.compiler.prove.schedule import Schedule, make_script
from speccompile.compiler.prove.schedule_runs import Outputs, Recording, run_schedule
from speccompile.compiler.step.decoder import CacheShape, Decoder
from speccompile.compiler.step.draft import Drafter
from speccompile.contract import Graph
from tests import zoo

BATCH, MAX_LENGTH, ROWS = 2, 48, 96


def decoder(name: str, seed: int = 0) -> Decoder:
    """Return the model behind the attention hook, for two sequences of at most 48 tokens."""
    return probe(zoo.model(name, seed).requires_grad_(False), CacheShape(BATCH, ROWS, MAX_LENGTH))


@dataclass
class Driven:
    """A drafter's graph, and what it gave for a script."""

    exported: Exported
    script: Schedule
    outputs: Outputs

    @property
    def graph(self) -> Graph:
        return self.exported.graph

    @property
    def of_proof(self) -> Recording:
        return Recording(self.graph, EAGER, self.script, self.outputs)

    @property
    def weights(self) -> set[str]:
        return {name for name, value in self.exported.model.graph.initializers.items() if value.const_value.size > 1}

    def n_nodes(self, kind: str) -> int:
        return sum(node.op_type == kind for node in self.exported.model.graph)


def driven(drafter: Drafter, folder: Path, vocabulary: int = zoo.VOCABULARY, common: int | None = None) -> Driven:
    """Trace the drafter, and run its neutral graph. vocabulary: the target's tokens; common: as of `make_script`."""
    exported = export_draft(drafter, BATCH)
    write_neutral(exported.model, exported.graph, folder, "drafter.weights")
    script = make_script(vocabulary, BATCH, MAX_LENGTH, 24, 16, drafter.shape, common)
    engine = neutral_engine([(exported.graph, neutral_file(exported.graph))], folder)
    return Driven(exported, script, run_schedule(engine, script, [exported.graph]))


def model(name: str, seed: int = 0) -> PreTrainedModel:
    """Return what transformers loads apart, which nothing of ours has touched."""
    return zoo.model(name, seed).requires_grad_(False)
