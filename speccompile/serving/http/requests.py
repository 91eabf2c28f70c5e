"""Parse request bodies and submit them to a service."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from speccompile.bundle.sampling import LOGIT_BIAS, MIN_TEMPERATURE, SAMPLING_OPTIONS
from speccompile.serving.http import prompts
from speccompile.serving.http.errors import NOT_FOUND, RequestError
from speccompile.serving.http.fields import CHAT, COMPLETION, validate
from speccompile.serving.http.images import read_pictures, shown_messages
from speccompile.serving.http.schema import shown
from speccompile.serving.http.structured_outputs import constraint_of
from speccompile.serving.http.tools import Tools

if TYPE_CHECKING:
    from speccompile.runtime.text_bundle import Texts
    from speccompile.serving.scheduler import Request, Service

_DEFAULT_MAX_TOKENS = 16
"""Default `max_tokens` of a completion, as in OpenAI's API."""


@dataclass(frozen=True)
class ParsedRequest:
    """Parsed request.

    prompts: token ids of each; options: of `Service.submit`, the same for all; sequences: number for each prompt.
    stream: send output as it comes; usage: at the end of the stream, or with every chunk (`continuous_usage`).
    logprobs: number of alternative tokens at each position, None for no log-probabilities. echo: texts before the
    answers, one for each prompt. token_ids: whether to send them. drafts: whether to send what each round drafted.
    salt: only requests with the same salt share cached prompts. tools: that an answer may call. model: as the request
    names it, if it does.
    """

    chat: bool
    prompts: list[list[int]]
    options: dict[str, Any]
    sequences: int = 1
    stream: bool = False
    usage: bool = False
    continuous_usage: bool = False
    logprobs: int | None = None
    echo: list[str] | None = None
    token_ids: bool = False
    drafts: bool = False
    salt: str = ""
    priority: int = 0
    tools: Tools | None = None
    model: str | None = None

    @property
    def choices(self) -> int:
        return len(self.prompts) * self.sequences


class TokenizedBody(NamedTuple):
    """Body of a request whose texts have been tokenized. fields: those that are set, without the texts; prompts: token
    ids of each; images: files of the pictures of the only prompt; pictures: what has been made of them here, none where
    another process has read the body."""

    fields: dict[str, Any]
    prompts: list[list[int]]
    images: Sequence[Any] = ()
    pictures: Sequence[Any] = ()


def check_model(name: Any, served: Sequence[str]) -> None:
    """Raise RequestError for a name that is not served. A name of another type is refused when the field is read."""
    if isinstance(name, str) and name not in served:
        raise RequestError(
            f"the model {name[:80]!r} does not exist: expected {' or '.join(map(repr, served))}", status=404,
            kind=NOT_FOUND, param="model", code="model_not_found",
        )  # fmt: skip


def adapter_of(name: Any, served: str) -> str | None:
    """Return the adapter that the name of a model says, served:adapter; None for the model itself."""
    return name.removeprefix(f"{served}:") if isinstance(name, str) and name.startswith(f"{served}:") else None


def with_adapter(request: ParsedRequest, served: str) -> ParsedRequest:
    """Return the request with the adapter that its model's name says."""
    adapter = adapter_of(request.model, served)
    return request if adapter is None else replace(request, options=request.options | {"adapter": adapter})


def with_model_name(body: Any, served: str) -> Any:
    """Return the body if it names the served model, with an adapter or without, or none. Raise RequestError for another
    name; a body that is no object is refused later, and so is an adapter that is not there."""
    if isinstance(body, dict) and adapter_of(body.get("model"), served) is None:
        check_model(body.get("model"), [served])
    return body


def with_default_speculative(body: Any, *, speculative: bool) -> Any:
    """Return the body with `speculative` set, to this default if it was not."""
    if not isinstance(body, dict) or body.get("speculative") is not None:
        return body
    return body | {"speculative": speculative}


def read_chat(body: Any, bundle: "Texts") -> ParsedRequest:
    """Parse a body of /v1/chat/completions. Raise RequestError for what this bundle cannot take."""
    return chat_request(chat_fields(body, bundle), bundle)


def read_completion(body: Any, bundle: "Texts") -> ParsedRequest:
    """Parse a body of /v1/completions. Raise RequestError for what this bundle cannot take."""
    return completion_request(completion_fields(body, bundle), bundle)


def chat_fields(body: Any, bundle: "Texts") -> TokenizedBody:
    """Check a body of /v1/chat/completions and tokenize its messages. Raise RequestError."""
    with_images = shown_messages(body, bundle.vision)
    fields = validate(body if with_images is None else with_images.rest, CHAT)
    top = fields.get("top_logprobs")
    if top is not None and not fields.get("logprobs"):
        raise RequestError(f"top_logprobs: received {top} without logprobs", param="top_logprobs", hint="set logprobs")
    kept = prompts.kept_tokens(fields, bundle, int(fields.get("max_completion_tokens", fields.get("max_tokens", 1))))
    tools = Tools.of(fields, bundle)
    if with_images is not None and bundle.vision is not None:
        with_images = read_pictures(with_images, bundle.vision)
    prompt = prompts.chat_prompt(fields, bundle, tools, fits=kept is None, shown=with_images)[-(kept or 0) :]
    prompts.check_length(prompt, bundle, "messages")
    images, pictures = ([], ()) if with_images is None else (with_images.images, with_images.pictures)
    return TokenizedBody(_without(fields, "messages", "chat_template_kwargs"), [prompt], images, pictures)


def chat_request(body: TokenizedBody, bundle: "Texts") -> ParsedRequest:
    """Return the request of a checked body of /v1/chat/completions. Raise RequestError for options and constraints that
    this bundle cannot take."""
    fields, (prompt,), images, pictures = body
    tools, top, common = Tools.of(fields, bundle), fields.get("top_logprobs"), _common(fields)
    room = bundle.manifest.max_length - len(prompt)
    most = int(fields.get("max_completion_tokens", fields.get("max_tokens", room)))
    logprobs = int(top or 0) if fields.get("logprobs") else None
    options = _options(fields, bundle, most, logprobs)
    if images:
        options["images"] = list(pictures or images)
    if tools is not None:
        options |= _call(tools, options, bundle)
    return ParsedRequest(True, [prompt], options, logprobs=logprobs, tools=tools, **common)


def _call(tools: Tools, options: dict[str, Any], bundle: "Texts") -> dict[str, Any]:
    """Return the option that forces a tool call, if there must be one. Raise RequestError if another form is requested
    too."""
    if "constraint" in options:
        raise RequestError(
            "tools: received them beside another form of the answer, expected one of them", param="tools",
            code="unsupported_parameter", hint="set tool_choice to none, or leave the form out",
        )  # fmt: skip
    constraint = tools.constraint(bundle)
    return {} if constraint is None else {"constraint": constraint}


def completion_fields(body: Any, bundle: "Texts") -> TokenizedBody:
    """Check a body of /v1/completions and tokenize its prompts. Raise RequestError."""
    fields = validate(body, COMPLETION)
    kept = prompts.kept_tokens(fields, bundle, int(fields.get("max_tokens", _DEFAULT_MAX_TOKENS)))
    tokens = prompts.text_prompts(fields, bundle, kept)
    for each in tokens:
        prompts.check_length(each, bundle, "prompt")
    return TokenizedBody(_without(fields, "prompt"), tokens)


def completion_request(body: TokenizedBody, bundle: "Texts") -> ParsedRequest:
    """Return the request of a checked body of /v1/completions. Raise RequestError for options and constraints that this
    bundle cannot take."""
    fields, tokens, *_ = body
    logprobs = None if fields.get("logprobs") is None else int(fields["logprobs"])
    if fields.get("echo") and logprobs is not None:
        raise RequestError(
            "echo: received true with logprobs: log-probabilities of a prompt are not supported", param="echo",
            code="unsupported_parameter", hint="leave one of them out",
        )  # fmt: skip
    if fields.get("best_of", fields.get("n", 1)) != fields.get("n", 1):
        raise RequestError(
            f"best_of: received {fields['best_of']}, expected n, which is {fields.get('n', 1)}", param="best_of",
            code="unsupported_parameter", hint="leave it out",
        )  # fmt: skip
    common = _common(fields)  # before a grammar is compiled
    options = _options(fields, bundle, int(fields.get("max_tokens", _DEFAULT_MAX_TOKENS)), logprobs)
    echo = [prompts.require_tokenizer(bundle).decode(each) for each in tokens] if fields.get("echo") else None
    return ParsedRequest(False, tokens, options, logprobs=logprobs, echo=echo, **common)


def submit(asked: ParsedRequest, service: "Service", client: str = "") -> list["Request"]:
    """Submit one request for each prompt. Raise OverloadedError, and cancel all, unless the service takes every one."""
    requests: list[Request] = []
    salt = f"{client}:{asked.salt}"
    try:
        for prompt in asked.prompts:
            request = service.submit(prompt, client=client, salt=salt, priority=asked.priority, **asked.options)
            requests.append(request)
    except BaseException:
        for request in requests:
            request.cancel()
        raise
    asked.options.pop("images", None)  # whose pixels the sequences drop once they are encoded
    return requests


def _without(fields: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in names}


def _common(fields: dict[str, Any]) -> dict[str, Any]:
    stream, wanted = fields.get("stream", False), fields.get("stream_options")
    if wanted is not None and not stream:
        raise RequestError(
            "stream_options: received it without stream", param="stream_options", hint="set stream to true"
        )
    if fields.get("return_drafts") and not stream:
        raise RequestError(
            "return_drafts: received it without stream", param="return_drafts", hint="set stream to true"
        )
    wanted = wanted or {}
    usage = bool(wanted.get("include_usage"))
    return {
        "sequences": int(fields.get("n", 1)),
        "stream": stream,
        "usage": usage,
        "continuous_usage": bool(usage and wanted.get("continuous_usage_stats")),
        "token_ids": fields.get("return_token_ids", False),
        "drafts": fields.get("return_drafts", False),
        "salt": fields.get("cache_salt", ""),
        "priority": int(fields.get("priority", 0)),
        "model": fields.get("model"),
    }


def _options(fields: dict[str, Any], bundle: "Texts", most: int, logprobs: int | None) -> dict[str, Any]:
    """Return the options of `Service.submit`."""
    stop, sequences = fields.get("stop", []), int(fields.get("n", 1))
    if stop and bundle.text is None:
        raise RequestError(
            "stop: this model has no tokenizer, so no text to stop at", param="stop", hint="use stop_token_ids"
        )
    ends = [int(token) for token in fields.get("stop_token_ids", ())]
    prompts.check_tokens(ends, bundle.manifest.vocabulary_size, "stop_token_ids")
    options: dict[str, Any] = {
        "max_new_tokens": most,
        "stop": [stop] if isinstance(stop, str) else stop,
        "stop_token_ids": ends,
        "ignore_eos": fields.get("ignore_eos", False),
        "autoregressive": not fields.get("speculative", True),
        "logprobs": logprobs is not None,
    }
    _check_least(fields, options)
    biases = prompts.token_biases(fields.get(LOGIT_BIAS, {}), bundle.manifest.vocabulary_size, LOGIT_BIAS)
    if bundle.manifest.decoding == "greedy":
        options |= _greedy(fields, sequences, is_biased=any(biases.values()))
    else:
        options |= _sampled(fields, sequences) | ({LOGIT_BIAS: biases} if biases else {})
        if not bundle.manifest.adjusts_logits:
            _refuse_adjustments(fields, options)
    if logprobs:
        options["top_logprobs"] = logprobs
    constraint = constraint_of(fields, bundle)
    return options if constraint is None else options | {"constraint": constraint}


def _check_least(fields: dict[str, Any], options: dict[str, Any]) -> None:
    """Raise RequestError for `min_tokens` if an answer may end before."""
    least = fields.get("min_tokens", 0)
    ends = not options["ignore_eos"] or options["stop"] or options["stop_token_ids"]
    if least and (ends or least > options["max_new_tokens"]):
        raise RequestError(
            f"min_tokens: received {least}, which is only supported where nothing ends an answer before max_tokens",
            param="min_tokens", code="unsupported_parameter", hint="set ignore_eos, and no stop",
        )  # fmt: skip


def _greedy(fields: dict[str, Any], sequences: int, *, is_biased: bool) -> dict[str, Any]:
    """Return the sampling options for a greedy bundle: none. Limits of sampling such as top_p leave its choice
    unchanged."""
    warm = {
        name: _sampling_value(name, fields[name]) != option.neutral
        for name, option in SAMPLING_OPTIONS.items()
        if option.changes_greedy and name in fields
    }
    for name, refused in (warm | {LOGIT_BIAS: is_biased, "n": sequences > 1}).items():
        if refused:
            raise RequestError(
                f"{name}: received {shown(fields[name])}, but this model was compiled for greedy decoding",
                param=name, code="unsupported_value", hint="leave it out; a bundle with decoding: sampling takes it",
            )  # fmt: skip
    return {}


def _refuse_adjustments(fields: dict[str, Any], options: dict[str, Any]) -> None:
    """Raise RequestError for what a bundle without inputs for biases and penalties would have to ignore."""
    added = [name for name, option in SAMPLING_OPTIONS.items() if not option.is_input and options.get(name)]
    for name in [*added, *([LOGIT_BIAS] if any(options.get(LOGIT_BIAS, {}).values()) else [])]:
        raise RequestError(
            f"{name}: received {shown(fields[name])}, but this model was built by an earlier version, without inputs "
            "for it", param=name, code="unsupported_value", hint="leave it out; a bundle that is built again takes it",
        )  # fmt: skip


def _sampled(fields: dict[str, Any], sequences: int) -> dict[str, Any]:
    given = {"temperature": 1.0} | {name: fields[name] for name in SAMPLING_OPTIONS if name in fields}
    return {name: _sampling_value(name, value) for name, value in given.items()} | {"num_return_sequences": sequences}


def _sampling_value(name: str, value: float) -> float:
    """Return the value of a field in the range of the option, of which OpenAI's and vLLM's fields take more."""
    option = SAMPLING_OPTIONS[name]
    if option.kind == "seed":
        return int(value) % 2**64
    if option.kind == "count":
        return max(0, int(value))
    return cooled(value) if name == "temperature" else max(float(value), option.least)


def cooled(temperature: float) -> float:
    """Return a temperature from 0 on, with those that float32 cannot divide by as 0."""
    return float(temperature) if temperature >= MIN_TEMPERATURE else 0.0
