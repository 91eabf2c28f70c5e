"""OpenAI's audio endpoints: transcriptions and translations, whole or streamed by segments."""

import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.concurrency import iterate_in_threadpool, run_in_threadpool
from starlette.requests import Request as HttpRequest
from starlette.responses import Response, StreamingResponse

from speccompile.bundle.manifest import Manifest
from speccompile.bundle.sources import AUDIO
from speccompile.errors import UsageError
from speccompile.runtime import Generation
from speccompile.runtime.audio.reader import TRANSCRIBE, read_long_sound
from speccompile.runtime.audio.rules import RuleMatcher
from speccompile.runtime.generation_options import GenerationOptions
from speccompile.runtime.sources import check_language
from speccompile.runtime.transcription.long_form import LongForm, Transcription
from speccompile.runtime.transcription.segments import Segment
from speccompile.runtime.transcription.subtitles import VTT_START, subtitle
from speccompile.runtime.transcription.transcribe import check_hears
from speccompile.runtime.transcription.transcript import Transcript
from speccompile.serving.http.body import Json
from speccompile.serving.http.errors import RequestError, cancelled_error, to_request_error
from speccompile.serving.http.model import ServedModel
from speccompile.serving.http.multipart import Part, read_form
from speccompile.serving.http.requests import adapter_of, check_model, cooled
from speccompile.serving.http.schema import shown
from speccompile.serving.http.stream import DONE, cancel_on_disconnect, event
from speccompile.serving.scheduler import Request

TRANSCRIPTIONS_URL, TRANSLATIONS_URL = "/v1/audio/transcriptions", "/v1/audio/translations"
TRANSLATE = "translate"
MOST_BYTES = 25 * 2**20
"""Largest file, as OpenAI's; more where the server takes larger bodies."""
FORMATS = ("json", "text", "srt", "verbose_json", "vtt")
_COMMON = ("file", "model", "prompt", "response_format", "temperature", "stream")
FIELDS = {TRANSCRIBE: (*_COMMON, "language", "timestamp_granularities[]"), TRANSLATE: _COMMON}
"""Task -> fields of a form. Others are refused."""
WARMER = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
"""Whisper's fallback temperatures, tried in turn by bundles that sample if a request sets none."""
_FIELD_OF = {"audio": "file", "language": "language", "initial_prompt": "prompt"}
"""Option at the beginning of an error about a transcript -> field of the form that sets it."""


@dataclass(frozen=True)
class AudioRequest:
    """Checked form. temperature: None for the default; form: response format."""

    sound: bytes
    model: str | None
    task: str
    language: str | None
    prompt: str | None
    form: str
    temperature: float | None
    stream: bool


def audio_request(body: bytes, content_type: str, task: str) -> AudioRequest:
    """Return the request in a form. Raise RequestError, which names the field, for one that is wrong."""
    parts = read_form(body, content_type)
    for part in parts:
        if part.name not in FIELDS[task]:
            raise RequestError(
                f"{part.name[:80]}: there is no such field, expected {', '.join(FIELDS[task])}",
                param=part.name or None, code="unsupported_parameter",
            )  # fmt: skip
    files = [part for part in parts if part.name == "file"]
    if len(files) != 1 or not files[0].data:
        received = f"{len(files)} files" if len(files) != 1 else "an empty file"
        raise RequestError(f"file: received {received}, expected one sound", param="file")
    if any(part.text != "segment" for part in parts if part.name == "timestamp_granularities[]"):
        raise RequestError(
            "timestamp_granularities: received another than 'segment', expected it alone: words have no times here",
            param="timestamp_granularities",
        )  # fmt: skip
    form = _text(parts, "response_format") or "json"
    if form not in FORMATS:
        raise RequestError(
            f"response_format: received {form[:80]!r}, expected one of {', '.join(FORMATS)}", param="response_format"
        )
    stream = {"true": True, "false": False, None: False}.get(_text(parts, "stream"))
    if stream is None or (stream and form not in ("json", "text")):
        raise RequestError("stream: expected true or false, and true with the formats json and text", param="stream")
    return AudioRequest(
        files[0].data, _text(parts, "model"), task, _text(parts, "language"), _text(parts, "prompt"), form,
        _temperature(_text(parts, "temperature")), stream,
    )  # fmt: skip


def _text(parts: Sequence[Part], name: str) -> str | None:
    """Return the value of a field, None for one that is not there or empty."""
    found = [part.text for part in parts if part.name == name]
    if len(found) > 1:
        raise RequestError(f"{name}: received {len(found)} values, expected one", param=name)
    return found[0] or None if found else None


def _temperature(text: str | None) -> float | None:
    try:
        # float reads spaces, _ and the digits of every script as well
        value = None if text is None else float(text) if re.fullmatch(r"[!-^`-~]+", text) else -1.0
    except ValueError:
        value = -1.0
    if value is not None and not 0 <= value <= 1:
        raise RequestError(f"temperature: received {text!r}, expected a number from 0 to 1", param="temperature")
    return None if value is None else cooled(value)


class AudioRun:
    """Transcription of one request on a service, in threads other than the event loop's."""

    def __init__(self, request: AudioRequest, model: ServedModel, client: str, *, speculative: bool) -> None:
        self.request, self._model, self._client, self._speculative = request, model, client, speculative
        self._lock, self._cancelled = threading.Lock(), False
        self._running: Request | None = None

    def cancel(self) -> None:
        """End the current window, and begin no other."""
        with self._lock:
            self._cancelled = True
            if self._running is not None:
                self._running.cancel()

    def begin(self) -> Transcription:
        """Return the transcription. Raise RequestError, which names the field, for what the bundle cannot do."""
        try:
            return self._begin()
        except UsageError as error:
            raise _of_the_form(error) from error

    def _begin(self) -> Transcription:
        asked, bundle = self.request, self._model.bundle
        manifest = bundle.manifest
        check_hears(manifest)
        assert manifest.source is not None, "a target that hears"
        if bundle.text is None:
            raise RequestError(
                "this model has no tokenizer, so no text of what is spoken",
                hint="`speccompile transcribe` writes token ids; build the bundle with the target's tokenizer",
            )
        if asked.temperature and manifest.decoding != "sampling":
            raise RequestError(
                f"temperature: received {shown(asked.temperature)}, but this model was compiled for greedy decoding",
                param="temperature", code="unsupported_value",
                hint="leave it out; a bundle with decoding: sampling takes it",
            )  # fmt: skip
        if asked.language is not None:
            check_language(manifest.source, asked.language, "language")
        options = GenerationOptions(
            task=asked.task, max_new_tokens=manifest.max_length, temperature=_tried(asked, manifest),
            autoregressive=not self._speculative, adapter=adapter_of(asked.model, self._model.name),
        )  # fmt: skip
        form = LongForm(timestamps=asked.form in ("srt", "vtt", "verbose_json"), initial_prompt=asked.prompt)
        sound = read_long_sound(asked.sound, manifest.source[AUDIO])
        return Transcription(self._decode, manifest, bundle.text, sound, asked.language, options, form)

    def _decode(self, prompt: list[int], options: GenerationOptions, matcher: RuleMatcher) -> Generation:
        with self._lock:
            if self._cancelled:
                raise RequestError("the client hung up", status=499)
            request = self._model.service.submit(prompt, options, client=self._client, matcher=matcher)
            self._running = request
        (found,) = request.generations()
        if found.finish_reason in ("cancelled", "timeout"):
            raise cancelled_error(found.finish_reason, len(found.token_ids))
        return found

    def whole(self) -> Transcript:
        """Return the transcript."""
        return self.begin().result()


def _of_the_form(error: UsageError) -> RequestError:
    """Convert an error about an option into one about the field of the form that sets it."""
    if isinstance(error, RequestError):
        return error
    option, _, problem = str(error).partition(": ")
    if option == "timestamps":
        return RequestError(
            "response_format: this model writes no times, expected json or text", param="response_format"
        )
    field = _FIELD_OF.get(option)
    return RequestError(f"{field}: {problem}" if field else str(error), param=field, hint=error.hint)


def _tried(request: AudioRequest, manifest: Manifest) -> Any:
    """Return the temperatures to try for a request: with 0, higher ones follow if the bundle samples."""
    if request.temperature:
        return request.temperature
    return WARMER if manifest.decoding == "sampling" else 0.0


def answer(form: str, found: Transcript) -> Response:
    """Return the response in one of FORMATS."""
    text = found.text or ""
    if form in ("json", "verbose_json"):
        usage = {"type": "duration", "seconds": round(found.seconds, 3)}
        return Json(({"text": text} if form == "json" else _verbose(found)) | {"usage": usage})
    if form == "text":
        return Response(text + "\n", media_type="text/plain")
    blocks = "".join(subtitle(form, number, segment) for number, segment in enumerate(found.segments, 1))
    return Response((VTT_START if form == "vtt" else "") + blocks, media_type="text/plain")


def _verbose(found: Transcript) -> dict[str, Any]:
    return {
        "task": found.task, "language": found.language, "duration": round(found.seconds, 3), "text": found.text or "",
        "segments": [_segment(number, each) for number, each in enumerate(found.segments)],
    }  # fmt: skip


def _segment(number: int, segment: Segment) -> dict[str, Any]:
    shown = segment.to_json() | {"seek": round(100 * segment.seek), "no_speech_prob": segment.no_speech_prob or 0.0}
    return {"id": number, "tokens": shown.pop("token_ids")} | shown


def _events(writing: Transcription, run: AudioRun) -> Iterator[bytes]:
    """Yield the events of a streamed transcript: a delta for each segment, then the whole text."""
    try:
        for segment in writing:
            yield event({"type": "transcript.text.delta", "delta": segment.text or ""})
        usage = {"type": "duration", "seconds": round(writing.sound.seconds, 3)}
        yield event({"type": "transcript.text.done", "text": writing.result().text or "", "usage": usage})
    except Exception as error:  # noqa: BLE001 -- the client must receive any error: the status has been sent
        yield event(to_request_error(error).to_json())
    finally:
        run.cancel()
    yield DONE


class _Stream(StreamingResponse):
    """Streamed transcript, which ends with its client."""

    def __init__(self, writing: Transcription, run: AudioRun) -> None:
        super().__init__(self._all(writing, run), media_type="text/event-stream", headers={"Cache-Control": "no-cache"})

    @staticmethod
    async def _all(writing: Transcription, run: AudioRun) -> AsyncIterator[bytes]:
        try:
            async for each in iterate_in_threadpool(_events(writing, run)):
                yield each
        finally:
            run.cancel()


async def respond(
    http: HttpRequest, read: Callable[[], Any], model: ServedModel, task: str, client: str, *, speculative: bool
) -> Response:
    """Answer a request. read: coroutine function that returns its body. Raise RequestError."""
    body = await read()
    asked = await run_in_threadpool(audio_request, body, http.headers.get("content-type", ""), task)
    check_model(asked.model, model.names)
    run = AudioRun(asked, model, client, speculative=speculative)
    if asked.stream:
        return _Stream(await run_in_threadpool(run.begin), run)
    try:
        found = await cancel_on_disconnect(http, lambda: run_in_threadpool(run.whole))
    finally:
        run.cancel()
    return Response(status_code=499) if found is None else answer(asked.form, found)
