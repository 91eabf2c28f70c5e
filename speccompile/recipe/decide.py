"""Recipe -> Plan: every default, and every refusal that needs more than one key or a look at the files."""

from speccompile.bundle.prompts import read_prompts
from speccompile.errors import PromptError, RecipeError
from speccompile.recipe.capabilities import DRAFTER_KEYS, EXACT_METHODS
from speccompile.recipe.engines import PRECISION, Word, decide_engines
from speccompile.recipe.pair import check_pair
from speccompile.recipe.plan import DrafterPlan, ModelPlan, Plan, ProvePlan
from speccompile.recipe.refusal import one_of
from speccompile.recipe.resolve import resolve_model
from speccompile.recipe.schema import Cache, Drafter, Precision, Prove, Recipe, Verify

DRAFTER_KIND = "none"
TOKENS = 4
NGRAM = 3
DECODING = "greedy"
GRAPHS = "separate"
METHOD = "exact"
MAX_LENGTH = 2048
BATCH_SIZE = 1
PREFILL_CHUNK = 128
MAX_NEW_TOKENS = 64


def make_plan(recipe: Recipe) -> Plan:
    """Decide everything that the recipe leaves open, and refuse what cannot be built, before any work.

    Models named by Hub id are fetched. Raises RecipeError, PromptError for the content of a prompts file,
    CheckpointError and UnsupportedModelError for a model's files.
    """
    words = _decide_words(recipe)
    graphs, kind, method, decoding = (word for _, _, word in words)
    engines = decide_engines(recipe, words, kind)
    _refuse_drafter_keys(recipe)
    _refuse_fusing_nothing(recipe, graphs, kind)
    prove = _decide_prove(recipe)
    target, drafter, notes = _decide_models(recipe)
    _check_prompts(recipe, prove, target)
    cache = recipe.cache or Cache()
    max_length = _decide_max_length(recipe, target, drafter.model)
    return Plan(
        name=recipe.name,
        target=target,
        drafter=drafter,
        decoding=decoding,
        graphs=graphs,
        verify_method=method,
        exact=method in EXACT_METHODS,
        max_length=max_length,
        batch_size=cache.batch_size or BATCH_SIZE,
        prefill_chunk=_decide_prefill_chunk(recipe, max_length),
        engines=engines,
        prove=prove,
        notes=notes,
    )


def _drafter_kind(recipe: Recipe) -> str:
    return (recipe.drafter or Drafter()).kind or DRAFTER_KIND


def _decide_words(recipe: Recipe) -> list[Word]:
    """What every engine must be able to do."""
    return [
        ("graphs", "graphs", recipe.graphs or GRAPHS),
        ("drafter.kind", "drafter", _drafter_kind(recipe)),
        ("verify.method", "method", (recipe.verify or Verify()).method or METHOD),
        ("decoding", "decoding", recipe.decoding or DECODING),
    ]


def _refuse_drafter_keys(recipe: Recipe) -> None:
    """Refuse keys that mean nothing for the drafter's kind, and values of its keys that this version lacks."""
    drafter = recipe.drafter or Drafter()
    kind = _drafter_kind(recipe)
    known = DRAFTER_KEYS[kind]
    for name in Drafter.model_fields:
        if name not in known and getattr(drafter, name) is not None:
            raise _meaningless(recipe, f"drafter.{name}", kind, name)
    if drafter.tree is not None:
        received = "a tree, which is not available in this version"
        raise recipe.origin.refusal(
            "drafter.tree", received, "drafts in a chain", "remove drafter.tree, set drafter.tokens"
        )
    if drafter.sample:
        received = "true, but sampled drafts are not available in this version"
        raise recipe.origin.refusal("drafter.sample", received, "false", "set drafter.sample to false or remove it")


def _refuse_fusing_nothing(recipe: Recipe, graphs: str, kind: str) -> None:
    if graphs == "fused" and kind == "none":
        hint = "set graphs to separate or remove it, or add a drafter"
        raise recipe.origin.refusal("graphs", "'fused', but there is no drafter to fuse", "'separate'", hint)


def _meaningless(recipe: Recipe, key: str, kind: str, name: str) -> RecipeError:
    """The refusal of `key`, which means something for the kinds that have the drafter key `name`."""
    kinds = one_of([other for other, names in DRAFTER_KEYS.items() if name in names])
    return recipe.origin.refusal(
        key,
        "a key that means nothing for this drafter",
        f"it only with drafter.kind {kinds}, not {kind}",
        f"remove {key} (or set it to null), or change drafter.kind",
    )


def _decide_prove(recipe: Recipe) -> ProvePlan:
    prove = recipe.prove or Prove()
    path = None
    if prove.prompts is not None:
        path = recipe.origin.resolve(prove.prompts)
        if not path.is_file():
            received = f"'{prove.prompts}' (no file lies at {path})"
            hint = "correct prove.prompts; a relative path starts at the folder of the recipe"
            raise recipe.origin.refusal("prove.prompts", received, "a file with one prompt a line", hint)
    return ProvePlan(path, prove.max_new_tokens or MAX_NEW_TOKENS, prove.prompts)


def _decide_models(recipe: Recipe) -> tuple[ModelPlan, DrafterPlan, tuple[str, ...]]:
    """Target, drafter, and notes on the pair."""
    precision = recipe.precision or Precision()
    written = recipe.drafter or Drafter()
    kind = _drafter_kind(recipe)
    keys = DRAFTER_KEYS[kind]
    if "model" in keys and written.model is None:
        hint = "add it, for example `model: demo/drafter`"
        raise recipe.origin.refusal("drafter.model", "nothing", f"the model that drafter.kind {kind} drafts with", hint)
    target = resolve_model(
        "target", recipe.target.model, recipe.target.revision, precision.target or PRECISION, recipe.origin
    )
    model = None
    notes: tuple[str, ...] = ()
    if written.model is not None:
        model = resolve_model("drafter", written.model, written.revision, precision.drafter or PRECISION, recipe.origin)
        notes = check_pair(target, model, recipe.origin)
    tokens = written.tokens or TOKENS if "tokens" in keys else 0
    ngram = written.ngram or NGRAM if "ngram" in keys else None
    return target, DrafterPlan(kind, tokens, ngram, model), notes


def _check_prompts(recipe: Recipe, prove: ProvePlan, target: ModelPlan) -> None:
    """Refuse prompts that the target cannot take: ids past its vocabulary, text without a tokenizer."""
    size = target.facts.vocabulary_size
    for number, prompt in enumerate(read_prompts(prove.prompts) if prove.prompts else (), 1):
        if isinstance(prompt, str):
            if not target.facts.tokenizer:
                received = f"prompt {number} as text, but the target has no tokenizer.json"
                raise PromptError(
                    f"{prove.prompts}: received {received}, expected token ids",
                    hint='write prompts as {"token_ids": [1, 2, 3]}, or add the tokenizer to the target\'s folder',
                )
        elif max(prompt) >= size:
            raise PromptError(
                f"{prove.prompts}: received token id {max(prompt)} in prompt {number}, expected ids below {size}, "
                "the size of the target's vocabulary",
                hint="tokenize the prompts with the target's tokenizer",
            )


def _decide_max_length(recipe: Recipe, target: ModelPlan, drafter: ModelPlan | None) -> int:
    written = (recipe.cache or Cache()).max_length
    limits = [
        (model.facts.positions, name, model.reference)
        for name, model in (("target", target), ("drafter", drafter))
        if model is not None and model.facts.positions is not None
    ]
    if written is None:
        return min([MAX_LENGTH, *(positions for positions, _, _ in limits)])
    for positions, name, reference in limits:
        if written > positions:
            raise recipe.origin.refusal(
                "cache.max_length",
                str(written),
                f"at most {positions}, the positions of the {name} '{reference}'",
                f"set cache.max_length to {positions} or less",
            )
    return written


def _decide_prefill_chunk(recipe: Recipe, max_length: int) -> int:
    written = (recipe.cache or Cache()).prefill_chunk
    if written is None:
        return min(PREFILL_CHUNK, max_length)
    if written > max_length:
        hint = f"set cache.prefill_chunk to {max_length} or less"
        raise recipe.origin.refusal(
            "cache.prefill_chunk", str(written), f"at most cache.max_length, which is {max_length}", hint
        )
    return written
