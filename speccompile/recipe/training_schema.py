"""The section `train` of a recipe. Names, types and ranges only, as in `schema`; `recipe.training` decides the rest."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Discriminator, Field, Tag

from speccompile.plan.section import Section, optional

SHARE, FILE = HELD_OUT_FORMS = ("(share)", "(file)")
TRAIN_EXAMPLE = "{data: {kind: text, files: [docs]}, schedule: {seconds: 600}}"

_ANSWERS = "bundle, transformers, endpoint or given, or a mapping with the keys by, temperature and max_new_tokens"


def _list_of_one(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _by_of_text(value: Any) -> Any:
    return {"by": value} if isinstance(value, str) else value


def _form_of_held_out(value: Any) -> str | None:
    return FILE if isinstance(value, str) else SHARE if type(value) in (int, float) else None


class Answers(Section):
    """Source of the answers to prompts. The value of `by` alone is a short form."""

    by: str | None = optional("bundle, transformers, endpoint or given", "bundle", min_length=1)
    temperature: float | None = optional("a number from 0 to 10", 0, ge=0, le=10)
    sampled: float | None = optional("a share above 0, at most 1", 0.25, gt=0, le=1)
    prompts: int | None = optional("a whole number from 1 on", 2048, ge=1)
    max_new_tokens: int | None = optional("a whole number from 1 on", 256, ge=1)
    batch_size: int | None = optional("a whole number from 1 to 256", 8, ge=1, le=256)
    endpoint: str | None = optional(
        "the address of an OpenAI endpoint, http or https", "http://localhost:8000/v1", pattern=r"^https?://.+"
    )
    key: str | None = optional("the environment variable that holds the endpoint's key", "OPENAI_API_KEY", min_length=1)
    model: str | None = optional("the name that the endpoint has for the target", "target", min_length=1)


class Data(Section):
    """Training data."""

    kind: str | None = optional("prompts, conversations or text", "text", min_length=1)
    files: Annotated[list[Annotated[str, Field(min_length=1)]] | None, BeforeValidator(_list_of_one)] = optional(
        "files, folders or patterns (.jsonl, .parquet, text), or the name of a data set of the Hub",
        "[docs, notes/*.md]", min_length=1,
    )  # fmt: skip
    template: str | None = optional("a file with a chat template", "chat_template.jinja", min_length=1)
    answers: Annotated[Answers | None, BeforeValidator(_by_of_text)] = optional(_ANSWERS, "{by: bundle}")
    length: int | None = optional("a whole number of tokens from 8 on", 2048, ge=8)
    held_out: (
        Annotated[
            Annotated[float, Tag(SHARE), Field(gt=0, lt=1)] | Annotated[str, Tag(FILE), Field(min_length=1)],
            Discriminator(_form_of_held_out),
        ]
        | None
    ) = optional("a share of the documents above 0 and below 1, or a file of the same kind", 0.02)
    features: str | None = optional("online or disk", "online", min_length=1)
    packing: str | None = optional("buckets", "buckets", min_length=1)
    last_turn: bool | None = optional("true or false", "false")


class Loss(Section):
    kind: str | None = optional("ce, fkl, rkl, jsd, tvd, nla or hybrid", "fkl", min_length=1)
    beta: float | None = optional("a number from 0 to 1", 0.5, ge=0, le=1)
    hard: float | None = optional("a share from 0 to 1", 0.5, ge=0, le=1)
    depth_weights: str | None = optional("decay or dpace", "decay", min_length=1)
    decay: float | None = optional("a number above 0, at most 1", 0.8, gt=0, le=1)
    contexts: str | None = optional("target, drafter or mixed", "mixed", min_length=1)
    share: float | None = optional("a share of the batches above 0 and below 1", 0.5, gt=0, lt=1)
    anchors: int | None = optional("a whole number of blocks of a text from 1 on", 64, ge=1)
    drop: str | None = optional("the folder of another drafter of the same target", "first", min_length=1)


class Schedule(Section):
    """Budget and optimizer."""

    steps: int | None = optional("a whole number from 1 on", 1000, ge=1)
    seconds: float | None = optional("a number above 0", 600, gt=0, allow_inf_nan=False)
    batch_size: int | None = optional("a whole number of texts from 1 on", 16, ge=1)
    accumulate: int | None = optional("a whole number of parts from 1 on", 1, ge=1)
    optimizer: str | None = optional("adamw or muon", "adamw", min_length=1)
    learning_rate: float | None = optional("a number above 0, at most 1", 0.001, gt=0, le=1)
    matrix_rate: float | None = optional("a number above 0, at most 1", 0.006, gt=0, le=1)
    weight_decay: float | None = optional("a number from 0 to 1", 0.01, ge=0, le=1)
    warmup: int | None = optional("a whole number of steps from 0 on", 50, ge=0)
    final: float | None = optional("a share from 0 to 1", 0.05, ge=0, le=1)
    clip: float | None = optional("a number above 0", 1.0, gt=0, allow_inf_nan=False)
    precision: str | None = optional("float32 or bfloat16", "float32", min_length=1)
    checkpointing: bool | None = optional("true or false", "false")


class Evaluate(Section):
    every: float | None = optional("a number of seconds above 0", 60, gt=0, allow_inf_nan=False)
    texts: int | None = optional("a whole number from 1 on", 64, ge=1)
    depth: int | None = optional("a whole number from 1 to 16", 4, ge=1, le=16)
    compiled: bool | None = optional("true or false", "true")
    prompts: int | None = optional("a whole number from 1 on", 8, ge=1)
    max_new_tokens: int | None = optional("a whole number from 1 on", 64, ge=1)


class Save(Section):
    every: float | None = optional("a number of seconds above 0", 60, gt=0, allow_inf_nan=False)
    keep: int | None = optional("a whole number from 1 on", 2, ge=1)
    dtype: str | None = optional("float32, bfloat16 or float16", "bfloat16", min_length=1)
    dialect: str | None = optional("the name of a dialect that the kind is written in", "speculators", min_length=1)


class Train(Section):
    """Training of the drafter at `drafter.model`. Its kind determines the sizes in `shape`."""

    seed: int | None = optional("a whole number from 0 on", 0, ge=0, lt=2**31)
    begin: str | None = optional("the folder of a drafter to go on from, or a Hub id", "demo/drafter", min_length=1)
    depth: int | None = optional("a whole number from 1 to 16", 4, ge=1, le=16)
    taps: list[Annotated[str, Field(min_length=1)]] | None = optional(
        "a list of places in the target, such as layers.2.input, layers.15.output or norm.output",
        "[layers.2.input, layers.16.input, layers.29.input]", min_length=1,
    )  # fmt: skip
    vocabulary: int | None = optional("a whole number of tokens from 2 on", 32000, ge=2)
    shape: dict[str, int | str] | None = optional("a mapping of sizes of the new drafter, by name", "{layers: 1}")
    data: Data | None = optional("a mapping with the keys kind and files", "{kind: text, files: [docs]}")
    loss: Loss | None = optional("a mapping with the key kind", "{kind: fkl}")
    schedule: Schedule | None = optional("a mapping with the key steps or seconds", "{seconds: 600}")
    evaluate: Evaluate | None = optional("a mapping with the key every", "{every: 60}")
    save: Save | None = optional("a mapping with the key every", "{every: 60}")
