"""A bundle, opened: prompts in, text or tokens out."""

import threading
from collections.abc import Iterator, Sequence
from math import inf
from operator import index
from pathlib import Path
from time import perf_counter
from typing import Any

from speccompile.bundle import manifest as names
from speccompile.bundle.manifest import EngineEntry, Manifest
from speccompile.bundle.reader import open_bundle
from speccompile.errors import EngineError, PromptError, UsageError
from speccompile.runtime.chat import apply_chat_template, read_chat
from speccompile.runtime.engine import Engine
from speccompile.runtime.engines import choose, open_engine
from speccompile.runtime.generation import Generation, Row
from speccompile.runtime.loop import Loop
from speccompile.runtime.text import Stream, Text

Prompt = str | Sequence[int]
Chat = tuple[str, dict[str, str]]
"""A chat template, and the special tokens that it may write."""


class Bundle:
    """A target and its drafter, ready to generate. One generation at a time; open it again to run several."""

    def __init__(
        self, manifest: Manifest, engine: Engine, entry: EngineEntry, text: Text | None, chat: Chat | None
    ) -> None:
        self.manifest, self.engine, self.entry, self.text = manifest, engine, entry, text
        self._chat = chat
        self._loop = Loop(engine, manifest)
        self._lock = threading.Lock()
        self._owner: int | None = None

    @classmethod
    def open(
        cls, folder: str | Path, *, engine: str | None = None, threads: int | None = None, verify: bool = True
    ) -> "Bundle":
        """Open a bundle folder.

        engine: name of one of its engines, the first that can run here by default. threads: for the engine, its own
        choice by default. verify: compare every file with its recorded hash. Raises BundleError, EngineError or
        UsageError.
        """
        opened = open_bundle(Path(folder), verify=verify)
        entry = choose(opened.manifest, engine)
        running = open_engine(opened.folder, entry, threads)
        text = Text(opened.path(names.TOKENIZER)) if opened.manifest.tokenizer else None
        chat = read_chat(opened.path(names.CHAT)) if names.CHAT in opened.hashes.files else None
        return cls(opened.manifest, running, entry, text, chat)

    @property
    def engine_name(self) -> str:
        """The name of the engine that runs."""
        return self.entry.name

    @property
    def speculative(self) -> bool:
        """Whether the bundle can draft."""
        return self._loop.can_draft

    def token_ids(self, prompt: Prompt, *, chat: bool = False) -> list[int]:
        """The prompt's tokens. Raises PromptError when it is empty, too long, or not of this vocabulary."""
        ids = self._encode(prompt, chat) if isinstance(prompt, str) else [index(token) for token in prompt]
        if len(prompt) == 0 or not ids:  # a tokenizer may begin even an empty text with a token
            raise PromptError("the prompt is empty: expected at least one token", hint="give a text or token ids")
        size = self.manifest.vocabulary_size
        wrong = next((token for token in ids if not 0 <= token < size), None)
        if wrong is not None:
            raise PromptError(
                f"token id {wrong} is out of range: expected 0 to {size - 1}",
                hint="tokenize the prompt with the target's own tokenizer",
            )
        if len(ids) > self.manifest.max_length:
            raise PromptError(
                f"the prompt has {len(ids)} tokens, more than this bundle's capacity of {self.manifest.max_length}",
                hint="shorten it, or build the bundle with a larger cache.max_length",
            )
        return ids

    def _encode(self, prompt: str, chat: bool) -> list[int]:
        if self.text is None:
            raise PromptError(
                "this bundle has no tokenizer, and the prompt is a text", hint="give token ids (--token-ids 1,2,3)"
            )
        if not chat:
            return self.text.encode(prompt)
        if self._chat is None:
            raise PromptError("this bundle's tokenizer has no chat template", hint="leave --chat out")
        messages = [{"role": "user", "content": prompt}]
        template, special_tokens = self._chat
        written = apply_chat_template(template, messages, special_tokens)
        return self.text.encode(written, special_tokens=False)  # the template writes them itself

    def generate(self, prompt: Prompt, **options: Any) -> Generation:
        """One prompt, a text or token ids. Options as in `generate_batch`."""
        return self.generate_batch([prompt], **options)[0]

    def generate_batch(self, prompts: Sequence[Prompt], **options: Any) -> list[Generation]:
        """Up to `batch_size` prompts side by side, of any lengths.

        max_new_tokens: at most this many each, 128 by default. stop: texts before which a generation ends.
        autoregressive: one token a round, without drafts. chat: apply the chat template to text prompts.
        temperature, top_k, top_p, seed: for sampling, which greedy bundles refuse (temperature 0 is greedy).
        Raises PromptError for a prompt that the bundle cannot take.
        """
        batch = _Batch(self, prompts, **options)
        for _ in batch.run():
            pass
        return batch.generations()

    def stream(self, prompt: Prompt, **options: Any) -> "TextStream":
        """Pieces of text as they come; `.generation` when they have come. Options as in `generate_batch`."""
        if self.text is None:
            raise PromptError("this bundle has no tokenizer: there is no text to stream", hint="use generate")
        return TextStream(_Batch(self, [prompt], **options))


class TextStream:
    """An iterator over pieces of text. `generation` holds the whole once it is exhausted, None before."""

    def __init__(self, batch: "_Batch") -> None:
        self.generation: Generation | None = None
        self._pieces = self._run(batch)

    def __iter__(self) -> Iterator[str]:
        return self._pieces

    def __next__(self) -> str:
        return next(self._pieces)

    def close(self) -> None:
        """Stop early and free the bundle for the next generation."""
        self._pieces.close()  # type: ignore[attr-defined]

    def _run(self, batch: "_Batch") -> Iterator[str]:
        shown, row = 0, batch.rows[0]
        row.watched = True
        for _ in batch.run():
            for piece in row.pieces[shown:]:
                if piece:
                    yield piece
            shown = len(row.pieces)
        self.generation = batch.generations()[0]


class _Batch:
    """One call: its rows, and the time it took."""

    def __init__(
        self,
        bundle: Bundle,
        prompts: Sequence[Prompt],
        *,
        max_new_tokens: int = 128,
        stop: Sequence[str] = (),
        autoregressive: bool = False,
        chat: bool = False,
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
    ) -> None:
        manifest = bundle.manifest
        _refuse_sampling(manifest.decoding, temperature, {"top_k": top_k, "top_p": top_p, "seed": seed})
        if not 1 <= len(prompts) <= manifest.batch_size:
            raise PromptError(
                f"{len(prompts)} prompts at once: expected 1 to {manifest.batch_size}",
                hint="build the bundle with a larger cache.batch_size",
            )
        if max_new_tokens < 1:
            raise UsageError(f"max_new_tokens is {max_new_tokens}: expected at least 1")
        if stop and bundle.text is None:
            raise PromptError("this bundle has no tokenizer, so no text to stop at", hint="leave --stop out")
        self.bundle, self.speculative = bundle, bundle.speculative and not autoregressive
        self.seconds = 0.0
        self.rows = []
        for prompt in prompts:
            ids = bundle.token_ids(prompt, chat=chat)
            text = Stream(bundle.text, ids, stop) if bundle.text else None
            self.rows.append(Row(ids, max_new_tokens, manifest.max_length, manifest.eos_token_ids, text))

    def run(self) -> Iterator[None]:
        """Run to the end, holding the bundle's buffers."""
        bundle = self.bundle
        if bundle._owner == threading.get_ident():
            raise EngineError(
                "this bundle is in the middle of another stream",
                hint="finish or close that stream first, or open the bundle a second time",
            )
        with bundle._lock:  # other threads wait; a stream may move from one to the next, so no RLock
            bundle._owner = threading.get_ident()
            try:
                start = perf_counter()
                for _ in bundle._loop.generate(self.rows, self.speculative):
                    self.seconds += perf_counter() - start
                    yield
                    start = perf_counter()  # what the caller did in between is not ours
            finally:
                bundle._owner = None

    def generations(self) -> list[Generation]:
        return [self._generation(row) for row in self.rows]

    def _generation(self, row: Row) -> Generation:
        n_new, rounds, spent = len(row.token_ids), max(0, len(row.path_lengths) - 1), self.bundle._loop.seconds
        return Generation(
            text=None if row.stream is None else "".join(row.pieces),
            token_ids=row.token_ids,
            prompt_tokens=len(row.prompt),
            rounds=rounds,
            mean_accepted=(n_new - 1) / rounds if rounds else None,
            seconds=self.seconds,
            tokens_per_second=n_new / self.seconds if self.seconds else 0.0,
            finish_reason=row.finish_reason,
            mode="speculative" if self.speculative else "autoregressive",
            engine=self.bundle.engine_name,
            prefill_seconds=spent["prefill"],
            verify_seconds=spent["verify"],
            draft_seconds=spent["draft"],
            path_lengths=row.path_lengths[1:],
        )


def _refuse_sampling(decoding: str, temperature: float, others: dict[str, float | None]) -> None:
    if not 0 <= temperature < inf:
        raise UsageError(f"temperature: received {temperature}, expected a number from 0 on", hint="give 0 or more")
    asked = {"temperature": temperature or None} | others
    received = ", ".join(f"{name} {value}" for name, value in asked.items() if value is not None)
    if received:
        raise UsageError(
            f"received {received}, but the bundle was compiled for {decoding} decoding: sampling is not available",
            hint="leave these options out",
        )
