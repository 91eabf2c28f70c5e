"""Tensors of a request and of its answer.

Tensors that clients of TensorRT-LLM's models know, such as NVIDIA's OpenAI front end, have its names and types. The
code in speccompile/native/triton reads and writes the same tensors.
"""

from typing import NamedTuple

from speccompile.bundle.sampling import SAMPLING_OPTIONS


class Tensor(NamedTuple):
    """A tensor. type: Triton's, without TYPE_. size: of its only axis after the batch axis, -1 for any."""

    name: str
    type: str
    size: int = 1


_TYPES = {"number": "FP32", "count": "INT32", "seed": "UINT64"}

INPUTS = (
    Tensor("text_input", "STRING"),
    Tensor("input_ids", "INT64", -1),
    Tensor("max_tokens", "INT32"),
    Tensor("stop_words", "STRING", -1),
    Tensor("stream", "BOOL"),
    *(Tensor(name, _TYPES[option.kind]) for name, option in SAMPLING_OPTIONS.items()),
    Tensor("chat", "BOOL"),
    Tensor("logprobs", "BOOL"),
    Tensor("autoregressive", "BOOL"),
    # Sent by NVIDIA's front end: the input stays out of the output, and counts always come.
    Tensor("exclude_input_in_output", "BOOL"),
    Tensor("return_num_input_tokens", "BOOL"),
    Tensor("return_num_output_tokens", "BOOL"),
)
"""Inputs. All are optional; a request has one of the first two."""

OUTPUTS = (
    Tensor("text_output", "STRING"),
    Tensor("output_ids", "INT64", -1),
    # Only in the last response.
    Tensor("finish_reason", "STRING"),
    Tensor("num_input_tokens", "UINT32"),
    Tensor("num_output_tokens", "UINT32"),
    Tensor("generation", "STRING"),
)
"""Outputs. `generation` is the object of `speccompile generate --json`: logprobs, seed, rounds, .. Responses of a
stream have new text and new tokens, the last response those of the last round."""
