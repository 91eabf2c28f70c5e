"""Work of one run of a model's graph: bytes read and products, from a plan, configs and headers alone."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from speccompile.compiler.checkpoints.json_files import CONFIG, read_json_object
from speccompile.compiler.checkpoints.multimodal import TEXT
from speccompile.drafters import DRAFTING_METHODS
from speccompile.drafters.method import NO_RUN, ONE_A_DRAFT, OWN
from speccompile.errors import UsageError
from speccompile.measure.profile.graphs import bytes_per_weight
from speccompile.plan.plan import ModelPlan, Plan
from speccompile.plan.precisions import OWN_LAYOUTS, STORED, head_precision
from speccompile.recipe.cache_sizes import cache_width, config_number, token_bytes
from speccompile.recipe.resource_estimate import ModelWeights, PlanWeights
from speccompile.recipe.sizes import HEAD, LAYER, TABLE, Weight, stored_kind

NODES_OF_LAYER, NODES_OF_GRAPH = 11, 60
"""Nodes of a layer (four products, norms, rotation, attention, gate, two cache writes) and of the rest of a `verify`,
counted in graphs of Llama: acceptance, window, tables."""

EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
"""Keys of a config that say how many experts a layer has."""


@dataclass(frozen=True)
class Work:
    """One run of a model over some rows. weights: precision -> number of weights that products read. elements: numbers
    of a row that norms, rotation and gates give. logits: numbers of a row's output. attention: heads x numbers of a
    head, of all layers together. cache_bytes: of a committed token."""

    weights: dict[str, int]
    nodes: int
    elements: int
    logits: int
    attention: int
    cache_bytes: int

    @property
    def weight_bytes(self) -> float:
        return sum(count * bytes_per_weight(word) for word, count in self.weights.items())

    @property
    def products(self) -> int:
        """Return multiplications of a row, each with its addition."""
        return sum(self.weights.values())


@dataclass(frozen=True)
class DraftWork:
    """Runs of the drafter in a round. passes: whether it runs once for every depth, or once in all."""

    work: Work
    passes: bool


def target_work(plan: Plan) -> Work:
    """Return the work of a `verify`. Raise UsageError for a model whose time has no formula yet."""
    _check(plan.target)
    engine = plan.engines[0]
    return _model_work(plan.target, PlanWeights.of(plan).target, engine.precision.target, plan.caches.target)


def draft_work(plan: Plan) -> DraftWork | None:
    """Return the work of the drafter, None for lookups. Raise UsageError for a kind without formula."""
    kind, engine, found = plan.drafter.kind, plan.engines[0], PlanWeights.of(plan)
    word = engine.precision.drafter or engine.precision.target
    if plan.drafter.cascade is not None or plan.drafter.inner is not None or len(plan.drafter.models) > 1:
        raise _no_formula("drafter.kind", f"{kind} with several drafters")
    method = DRAFTING_METHODS[kind]
    if method.runs == NO_RUN:
        return None
    has_passes = method.runs == ONE_A_DRAFT
    if method.weights == OWN and has_passes:
        (model,) = plan.drafter.models
        _check(model)
        return DraftWork(_model_work(model, found.drafters[0], word, plan.caches.drafter), passes=True)
    if method.runs is None or not found.drafters:
        raise _no_formula("drafter.kind", kind)
    weights = _counted(found.drafters[0], word)
    borrowed = _counted(found.borrowed, engine.precision.target)
    for name, count in borrowed.items():
        weights[name] = weights.get(name, 0) + count
    return DraftWork(Work(weights, 40, 0, plan.target.facts.vocabulary_size, 0, 0), has_passes)


def _model_work(model: ModelPlan, weights: ModelWeights, word: str, cache: str) -> Work:
    layers = model.facts.layers
    if not layers or not model.facts.hidden_size:
        raise UsageError(
            f"{model.reference}: expected a config with layers and a hidden size, received neither",
            hint="the time of this architecture has no formula: build it, and use `speccompile bench`",
        )
    written = read_json_object(model.folder / CONFIG) or {}
    config = written.get(TEXT) or written
    heads = config_number(config, "num_attention_heads", "n_head", default=1)
    hidden = model.facts.hidden_size
    width = config_number(config, "head_dim", default=hidden // heads)
    inner = config_number(config, "intermediate_size", "n_inner", default=4 * hidden)
    return Work(
        _counted(weights, word),
        nodes=NODES_OF_GRAPH + NODES_OF_LAYER * layers,
        elements=layers * (2 * hidden + inner + heads * width + cache_width(model) // layers),
        logits=model.facts.vocabulary_size,
        attention=heads * width * layers,
        cache_bytes=token_bytes(model, cache),
    )


def _counted(model: ModelWeights, word: str) -> dict[str, int]:
    """Return precision -> number of weights that a run's products read; an embedding table counts only as the head."""
    found: dict[str, int] = defaultdict(int)
    has_head = any(weight.role == HEAD for weight in model.weights)
    for weight in _products(model.weights, tied=model.tied or not has_head):
        found[_word(word, weight)] += weight.size
    return dict(found)


def _products(weights: Iterable[Weight], *, tied: bool) -> Iterable[Weight]:
    for weight in weights:
        if weight.role == LAYER or (weight.role == HEAD and not tied) or (weight.role == TABLE and tied):
            yield weight


def _word(word: str, weight: Weight) -> str:
    """Return the precision of a weight's kernel: heads of int4 models are int8, float16 is read as bfloat16 is, and
    weights of GGUF files that stay as they are have codes or floats of their own."""
    if word == STORED:
        kind = stored_kind(weight)
        return "bfloat16" if weight.dtype == "BF16" else f"codes of {kind.bits} bits" if kind else "float32"
    if weight.role != LAYER:
        word = head_precision(word)
    return word if word in OWN_LAYOUTS else "bfloat16"


def _check(model: ModelPlan) -> None:
    written = read_json_object(model.folder / CONFIG) or {}
    config = written.get(TEXT) or written
    if any(isinstance(config.get(key), int) and config[key] > 1 for key in EXPERTS):
        raise _no_formula(model.reference, "a model with experts, whose bytes depend on the tokens of the window")
    if model.facts.states:
        raise _no_formula(model.reference, f"recurrent layers ({model.facts.states})")


def _no_formula(where: str, what: str) -> UsageError:
    return UsageError(
        f"{where}: received {what}, whose time has no formula yet",
        hint="build it, and measure it with `speccompile bench`",
    )
