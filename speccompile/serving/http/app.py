"""ASGI application: OpenAI's endpoints, and endpoints for monitoring."""

from dataclasses import dataclass, field
from functools import partial
from importlib.resources import files
from typing import Any

import anyio
import anyio.to_thread
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route

from speccompile import __version__
from speccompile.errors import SpeccompileError
from speccompile.runtime.audio.reader import TRANSCRIBE
from speccompile.serving.http import audio
from speccompile.serving.http.body import BodyReader, Json
from speccompile.serving.http.capabilities import capabilities
from speccompile.serving.http.errors import INVALID, NOT_FOUND, RequestError, to_request_error
from speccompile.serving.http.fields import CHAT_URL, COMPLETIONS_URL
from speccompile.serving.http.image_urls import ImageHosts
from speccompile.serving.http.images import MOST_BODY_BYTES
from speccompile.serving.http.keys import Keys
from speccompile.serving.http.metrics import MEDIA
from speccompile.serving.http.model import ServedModel
from speccompile.serving.http.multipart import MEDIA as MULTIPART
from speccompile.serving.http.page_files import page_routes
from speccompile.serving.http.reading import tasks
from speccompile.serving.http.requests import check_model, submit
from speccompile.serving.http.response import ResponseBuilder
from speccompile.serving.http.stream import Events, cancel_on_disconnect, collect

_FETCHING = 8
"""Requests whose pictures are fetched at once."""


@dataclass(frozen=True)
class Settings:
    """Settings of the application. keys: accepted API keys. max_body_bytes: of one request. origins: of pages that
    browsers allow to send requests (CORS). speculative: default of requests that do not set it. page: whether / is a
    page to talk to the model. image_hosts: from which pictures are fetched, by default none."""

    keys: Keys = field(default_factory=Keys)
    max_body_bytes: int = 4 * 2**20
    origins: tuple[str, ...] = ()
    speculative: bool = True
    page: bool = True
    image_hosts: ImageHosts = field(default_factory=ImageHosts)


def make_app(model: ServedModel, settings: Settings | None = None) -> Starlette:
    """Return an application over one model. It opens and closes nothing: see `ServedModel`."""
    api = _Api(model, settings or Settings())
    routes = [
        Route(CHAT_URL, api.chat, methods=["POST"]),
        Route(COMPLETIONS_URL, api.completions, methods=["POST"]),
        Route(audio.TRANSCRIPTIONS_URL, api.transcriptions, methods=["POST"]),
        Route(audio.TRANSLATIONS_URL, api.translations, methods=["POST"]),
        Route("/v1/models", api.models, methods=["GET"]),
        Route("/v1/models/{name:path}", api.model, methods=["GET"]),
        Route("/bundle", api.capabilities, methods=["GET"]),
        Route("/tokenize", api.tokenize, methods=["POST"]),
        Route("/detokenize", api.detokenize, methods=["POST"]),
        Route("/health", api.health, methods=["GET"]),
        Route("/metrics", api.metrics, methods=["GET"]),
        Route("/version", api.version, methods=["GET"]),
        Route("/openapi.json", api.openapi, methods=["GET"]),
    ]
    if api.settings.page:
        routes += page_routes()
    origins = api.settings.origins
    cors = Middleware(CORSMiddleware, allow_origins=origins, allow_methods=["*"], allow_headers=["*"])
    app = Starlette(
        routes=routes,
        middleware=[cors] if origins else [],
        exception_handlers={
            HTTPException: _not_routed,
            SpeccompileError: _refused,
            RecursionError: _refused,
            Exception: _refused,
        },
    )
    app.router.redirect_slashes = False  # a redirect would name whatever host the client has
    return app


class _Api:
    """Handlers of the endpoints. Parsing a body raises RequestError."""

    def __init__(self, model: ServedModel, settings: Settings) -> None:
        self._model, self.settings = model, settings
        self._bodies = BodyReader(settings.max_body_bytes)
        self._pictures = BodyReader(max(settings.max_body_bytes, MOST_BODY_BYTES))
        self._forms = BodyReader(max(settings.max_body_bytes, audio.MOST_BYTES))
        self._fetching = anyio.CapacityLimiter(_FETCHING)

    async def chat(self, http: HttpRequest) -> Response:
        return await self._generate(http, tasks.CHAT)

    async def completions(self, http: HttpRequest) -> Response:
        return await self._generate(http, tasks.COMPLETION)

    async def _generate(self, http: HttpRequest, task: str) -> Response:
        client = self._client(http)
        model = self._model
        sees = task == tasks.CHAT and model.bundle.vision is not None
        data = await self._read(http, sees=sees)
        if sees and self.settings.image_hosts.names:
            data = await anyio.to_thread.run_sync(self.settings.image_hosts.inlined, data, limiter=self._fetching)
        reading = partial(model.reader.request, task, data, speculative=self.settings.speculative)
        asked = await cancel_on_disconnect(http, reading)
        if asked is None:
            return Response(status_code=499)
        check_model(asked.model, model.names)
        # in a thread, because it waits for the scheduler
        requests = await run_in_threadpool(submit, asked, model.service, client)
        answer = ResponseBuilder(asked, asked.model or model.name, model.bundle.manifest, model.texts)
        if asked.stream:
            return Events(answer, requests, {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        try:
            generations = await cancel_on_disconnect(http, lambda: collect(requests))
        finally:
            for request in requests:
                request.cancel()
        return Response(status_code=499) if generations is None else Json(answer.full(generations))

    async def _read(self, http: HttpRequest, *, sees: bool) -> bytes:
        """Return a request's body. sees: it may have pictures."""
        return await (self._pictures if sees else self._bodies).read(http)

    async def transcriptions(self, http: HttpRequest) -> Response:
        return await self._hear(http, TRANSCRIBE)

    async def translations(self, http: HttpRequest) -> Response:
        return await self._hear(http, audio.TRANSLATE)

    async def _hear(self, http: HttpRequest, task: str) -> Response:
        client = self._client(http)
        read = partial(self._forms.read, http, MULTIPART)
        return await audio.respond(http, read, self._model, task, client, speculative=self.settings.speculative)

    async def models(self, http: HttpRequest) -> Response:
        self._client(http)
        return Json({"object": "list", "data": [self._described(name) for name in self._model.names]})

    async def model(self, http: HttpRequest) -> Response:
        self._client(http)
        check_model(http.path_params["name"], self._model.names)
        return Json(self._described(http.path_params["name"]))

    async def capabilities(self, http: HttpRequest) -> Response:
        self._client(http)
        return Json(capabilities(self._model.bundle, model=self._model.name, speculative=self.settings.speculative))

    async def tokenize(self, http: HttpRequest) -> Response:
        return await self._answer(http, tasks.TOKENIZED)

    async def detokenize(self, http: HttpRequest) -> Response:
        return await self._answer(http, tasks.DETOKENIZED)

    async def _answer(self, http: HttpRequest, task: str) -> Response:
        self._client(http)
        data = await self._read(http, sees=task == tasks.TOKENIZED and self._model.bundle.vision is not None)
        found = await cancel_on_disconnect(http, partial(self._model.reader.answer, task, data))
        return Response(status_code=499) if found is None else Response(found, media_type=Json.media_type)

    async def health(self, http: HttpRequest) -> Response:
        status = self._model.status
        return Json({"status": status}, status_code=200 if status == "ready" else 503)

    async def metrics(self, http: HttpRequest) -> Response:
        return Response(self._model.metrics.text(), headers={"Content-Type": MEDIA})

    async def version(self, http: HttpRequest) -> Response:
        return Json({"version": __version__})

    async def openapi(self, http: HttpRequest) -> Response:
        return Response(
            files("speccompile.serving.http").joinpath("openapi.json").read_bytes(), media_type=Json.media_type
        )

    def _client(self, http: HttpRequest) -> str:
        return self.settings.keys.authenticate(http.headers.get("authorization"))

    def _described(self, name: str) -> dict[str, Any]:
        model = {"id": name, "object": "model", "created": self._model.created, "owned_by": "speccompile"}
        if name != self._model.name:
            model["parent"] = self._model.name
        return model | {"max_model_len": self._model.bundle.manifest.max_length}


async def _refused(http: HttpRequest, error: Exception) -> Response:
    refused = to_request_error(error)
    return Json(refused.to_json(), status_code=refused.status, headers=refused.headers)


async def _not_routed(http: HttpRequest, error: Exception) -> Response:
    """Return the error for 404 and 405, which reach no handler."""
    assert isinstance(error, HTTPException)
    status, what = error.status_code, f"{http.method} {http.scope['path'][:80]}: {error.detail}"
    kind = NOT_FOUND if status == 404 else INVALID
    headers = {name: ", ".join(sorted(value.split(", "))) for name, value in (error.headers or {}).items()}
    return Json(RequestError(what, status=status, kind=kind).to_json(), status_code=status, headers=headers)
