"""A FastAPI application with a bundle in it: endpoints of your own, beside OpenAI's API under /openai.

pip install 'speccompile[serve]' fastapi
BUNDLE=build/demo uvicorn --app-dir scripts/examples --factory fastapi_app:create_app
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import fastapi
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, Field

from speccompile.errors import SpeccompileError
from speccompile.runtime import Bundle
from speccompile.serving.http.app import make_app
from speccompile.serving.http.errors import to_request_error
from speccompile.serving.http.model import ServedModel
from speccompile.serving.scheduler import Request


class Continuation(BaseModel):
    """Body of the endpoints."""

    prompt: str
    max_new_tokens: int = Field(default=64, ge=1, le=1024)


def create_app(bundle: Bundle | None = None) -> fastapi.FastAPI:
    """Return the application. It serves `bundle`, by default the one in the folder $BUNDLE, until it ends."""
    model = ServedModel("bundle")  # all endpoints share its batch slots, its queue and its cached prompts

    @asynccontextmanager
    async def lifespan(_: fastapi.FastAPI) -> AsyncIterator[None]:
        with bundle or Bundle.open(os.environ["BUNDLE"]) as opened:
            model.start(opened)
            yield
            await asyncio.to_thread(model.close, 10)  # finish what runs, for at most 10 seconds

    app = fastapi.FastAPI(title="A bundle in FastAPI", lifespan=lifespan)
    app.mount("/openai", make_app(model))

    @app.exception_handler(SpeccompileError)
    async def refuse(_: fastapi.Request, error: SpeccompileError) -> JSONResponse:
        refused = to_request_error(error)  # a full queue is 429, a prompt that is too long 400
        return JSONResponse({"detail": str(refused), "hint": refused.hint}, refused.status, refused.headers)

    def submit(body: Continuation) -> Request:
        return model.service.submit(body.prompt, max_new_tokens=body.max_new_tokens)

    @app.post("/continue")
    async def continue_text(body: Continuation) -> dict[str, Any]:
        (generation,) = await submit(body)
        return {
            "text": generation.text,
            "tokens": len(generation.token_ids),
            "acceptance_length": generation.acceptance_length,
        }

    @app.post("/continue/stream")
    async def stream_text(body: Continuation) -> StreamingResponse:
        return StreamingResponse(_pieces(submit(body)), media_type="text/plain; charset=utf-8")

    return app


async def _pieces(request: Request) -> AsyncIterator[str]:
    async with request:  # a client that hangs up cancels it
        async for delta in request:
            yield delta.text
