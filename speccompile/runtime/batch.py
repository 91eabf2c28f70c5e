"""One call of an open bundle: its sequences, from the prompts to the generations."""

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from time import perf_counter
from typing import Any, Protocol

from speccompile.bundle.manifest import Manifest
from speccompile.errors import UsageError
from speccompile.runtime.adapters import Adapters, adapter_key
from speccompile.runtime.audio.rules import RuleMatcher, impose_rules
from speccompile.runtime.constraints import GrammarCompiler
from speccompile.runtime.exclusive_use import Caller, ExclusiveUse
from speccompile.runtime.generation import Generation, SequenceState
from speccompile.runtime.generation_options import GenerationOptions
from speccompile.runtime.images.reader import SeenPrompt, check_session_images, check_truncation, images_per_prompt
from speccompile.runtime.options import check_prompts, check_truncate
from speccompile.runtime.rounds.decode_loop import DecodeLoop
from speccompile.runtime.rounds.slots import SlotContent
from speccompile.runtime.rounds.source_encoder import source_key
from speccompile.runtime.sequences import make_sequences
from speccompile.runtime.sessions import Sessions, check_session
from speccompile.runtime.shipped_prefixes import ShippedPrefixes
from speccompile.runtime.sources import resolve_sources
from speccompile.runtime.text.prompts import TRUNCATE, Prompt
from speccompile.runtime.text.tokenizer import Tokenizer
from speccompile.runtime.timings import GenerationTimes


class Owner(Protocol):
    """Bundle as a call sees it."""

    manifest: Manifest
    text: Tokenizer | None
    grammars: GrammarCompiler
    _use: ExclusiveUse
    _loop: DecodeLoop
    _sessions: Sessions
    _prefixes: ShippedPrefixes
    _adapters: Adapters

    @property
    def speculative(self) -> bool: ...

    def _exclusive(self, *, caller: Caller | None = None) -> AbstractContextManager[None]: ...

    def _prompt(self, prompt: Prompt | None, *, chat: bool, hint: str | None, images: Sequence[Any]) -> SeenPrompt: ...

    def _generation(self, row: SequenceState, spent: GenerationTimes, *, speculative: bool) -> Generation: ...


class Batch:
    """One call: its sequences, and the time it took."""

    def __init__(
        self, bundle: Owner, prompts: Sequence[Prompt | None], options: GenerationOptions, *, side_by_side: bool = True,
        matcher: RuleMatcher | None = None,
    ) -> None:  # fmt: skip
        """side_by_side: whether all sequences need a batch slot of the bundle at once. matcher: rules of the only
        sequence of a target that hears, in place of its own."""
        bundle._use.check_open()
        check_prompts(prompts)
        sources, begun = resolve_sources(prompts, options, bundle.manifest, bundle.text)
        hint = None if check_truncate(options.truncate) else TRUNCATE
        images = images_per_prompt(options.images, len(begun))
        pairs = zip(begun, images, strict=True)
        seen = [bundle._prompt(prompt, chat=options.chat, hint=hint, images=each) for prompt, each in pairs]
        check_truncation(options.truncate, images)
        ids = [each.ids for each in seen]
        own = (bundle.manifest, bundle.text, bundle.grammars)
        self.rows = make_sequences(ids, options, *own, side_by_side=side_by_side)
        impose_rules(self.rows, bundle.manifest, matcher)
        chosen, each = bundle._adapters.per_prompt(options.adapter, len(ids)), len(self.rows) // len(ids)
        for number, row in enumerate(self.rows):
            row.adapter, row.media = chosen[number // each], seen[number // each].media
            row.source = None if sources is None else sources[number // each]
            row.source_key = source_key(row.source)
        self.session = check_session(options.session, len(self.rows), side_by_side=side_by_side)
        check_session_images(self.session, images)
        self.bundle, self.adaptive = bundle, options.adaptive
        self.speculative = bundle.speculative and not options.autoregressive
        self.seconds: list[float] = []
        """Seconds of the prefill, and of every round."""
        self._parts = dict.fromkeys(("prefill", "verify", "draft"), 0.0)
        """Seconds by part."""
        self._speedup: float | None = None
        self._reused: dict[int, int] = {}
        self.caller: Caller | None = None
        """Caller for whom this holds the buffers; None for the thread that runs it."""

    def run(self) -> Generator[None]:
        """Run to the end, holding the bundle's buffers."""
        bundle = self.bundle
        with bundle._exclusive(caller=self.caller):
            loop, start = bundle._loop, perf_counter()
            for row in self.rows:
                bundle._adapters.check(row.adapter)
            self._parts = loop.seconds
            if self.session is not None and self.session.exists():
                bundle._sessions.load(self.session, adapter_key(self.rows[0].adapter), is_replaced=True)
            if len(self.rows) == 1 and self.rows[0].adapter is None:
                loop.resume = bundle._prefixes.resume(self.rows[0].prompt_identity, loop.resume)
            elif len(self.rows) > 1:
                loop.starts = self._shipped_prefixes()
            try:
                for _ in loop.generate(self.rows, self.speculative, self.adaptive):
                    self.seconds.append(perf_counter() - start)
                    yield
                    start = perf_counter()  # without the caller's time in between
                if self.session is not None and loop.left is not None:
                    bundle._sessions.save(self.session)
            finally:  # the next generation writes its own, or the bundle is closed
                self._parts, self._reused = dict(loop.seconds), dict(loop.reused)
                if len(self.rows) == 1:
                    lengths, new_tokens = self.rows[0].draft_lengths[1:], len(self.rows[0].token_ids) - 1
                    self._speedup = loop.drafting.policy.estimated_speedup(lengths, new_tokens)

    def _shipped_prefixes(self) -> dict[int, SlotContent]:
        """Restore the longest prefix of the bundle for each prompt into its slot. Return what the slots hold."""
        prompts = {slot: row.prompt_identity for slot, row in enumerate(self.rows) if row.adapter is None}
        found = {slot: self.bundle._prefixes.restore(prompt, slot, 0) for slot, prompt in prompts.items()}
        return {slot: content for slot, content in found.items() if content is not None}

    def run_whole(self, is_cancelled: Callable[[], bool] = bool) -> list[Generation]:
        """Run to the end, or until it is cancelled, and return the generations. A session that cannot be written is an
        error that has them."""
        try:
            with closing(self.run()) as rounds:
                for _ in rounds:
                    if is_cancelled():
                        break
        except UsageError as error:
            if self.seconds and not any(row.is_active or row.error for row in self.rows):
                error.generations = self.generations()
            raise
        return self.generations()

    def generations(self) -> list[Generation]:
        """Return the generation of each sequence, once it has ended. Raise a sequence's own error."""
        seconds, parts = self.seconds, self._parts
        spent = GenerationTimes(
            seconds=sum(seconds),
            prefill=parts["prefill"],
            rounds=seconds[1:],
            verify=parts["verify"],
            draft=parts["draft"],
            first_token=seconds[0] if seconds else None,
            estimated_speedup=self._speedup,
        )
        return [
            self.bundle._generation(
                row, replace(spent, cached_tokens=self._reused.get(slot, 0)), speculative=self.speculative
            )
            for slot, row in enumerate(self.rows)
        ]
