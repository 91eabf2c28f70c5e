"""config.pbtxt: the description of a model that Triton reads before it loads it."""

import json
from collections.abc import Mapping, Sequence

from speccompile.serving.triton.tensors import INPUTS, OUTPUTS, Tensor

MARK = "# Written by `speccompile triton`."


def render(
    name: str, *, backend: str, batch_size: int, instances: int, kind: str, parameters: Mapping[str, str]
) -> str:
    """Return the text of config.pbtxt. kind: of the instances, without KIND_."""
    # Requests that wait while others run go to an instance together, which runs them as one batch.
    batching = ["dynamic_batching { }"] if batch_size > 1 else []
    lines = [
        MARK,
        f"name: {json.dumps(name)}",
        f"backend: {json.dumps(backend)}",
        f"max_batch_size: {batch_size}",
        "model_transaction_policy { decoupled: true }",
        *batching,
        f"instance_group [ {{ kind: KIND_{kind} count: {instances} }} ]",
        *_tensors("input", INPUTS, " optional: true"),
        *_tensors("output", OUTPUTS, ""),
        *(
            f"parameters {{ key: {json.dumps(key)} value {{ string_value: {json.dumps(value, ensure_ascii=False)} }} }}"
            for key, value in parameters.items()
        ),
    ]
    return "\n".join(lines) + "\n"


def _tensors(word: str, tensors: Sequence[Tensor], more: str) -> list[str]:
    # Triton batches only requests with equal shapes, unless a tensor may be ragged.
    return [
        f'{word} [ {{ name: "{each.name}" data_type: TYPE_{each.type} dims: [ {each.size} ]{more}'
        f"{' allow_ragged_batch: true' if word == 'input' and each.size < 0 else ''} }} ]"
        for each in tensors
    ]
