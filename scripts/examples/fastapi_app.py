"""A FastAPI application with a bundle in it: routes of its own, and OpenAI's API below /llm.

pip install 'speccompile[serve]' fastapi
BUNDLE=build/demo uvicorn --app-dir scripts/examples fastapi_app:app
curl localhost:8000/complete -H 'Content-Type: application/json' -d '{"text": "def main("}'
curl localhost:8000/llm/v1/models
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI
from pydantic import BaseModel, Field

from speccompile.serving.http.app import make_app
from speccompile.serving.http.model import ServedModel

model = ServedModel("demo")


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    model.open(Path(os.environ.get("BUNDLE", "build/demo")))
    yield
    model.close()


class Question(BaseModel):
    text: str = Field(min_length=1, max_length=4000)
    max_new_tokens: int = Field(default=32, ge=1, le=256)


class Answer(BaseModel):
    text: str
    acceptance_length: float | None


app = FastAPI(lifespan=lifespan)
app.mount("/llm", make_app(model))


@app.post("/complete")
async def complete(question: Question) -> Answer:
    """Complete a text. Requests run side by side in the bundle's rows; a client that leaves frees its row."""
    async with model.service.submit(question.text, max_new_tokens=question.max_new_tokens) as request:
        (generation,) = await request
    return Answer(text=generation.text, acceptance_length=generation.acceptance_length)
