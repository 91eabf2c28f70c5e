"""Open bundle: prompts in, text or tokens out."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from operator import index
from pathlib import Path
from time import perf_counter
from typing import Any

from speccompile import native
from speccompile.bundle import manifest as names
from speccompile.bundle.acceptance import measured
from speccompile.bundle.manifest import EngineEntry, Manifest
from speccompile.bundle.reader import open_bundle
from speccompile.errors import EngineError, PromptError, UsageError
from speccompile.runtime.constraints import Constraint, ConstraintOption, GrammarCompiler
from speccompile.runtime.devices.engine import Engine
from speccompile.runtime.devices.engines import choose, open_engine
from speccompile.runtime.generation import Generation, GenerationTimes, SequenceState
from speccompile.runtime.options import (
    NEW_TOKENS,
    check_new_tokens,
    check_sequences,
    check_top_logprobs,
    resolve_stop_token_ids,
    row_samplings,
)
from speccompile.runtime.round_times import RecordedTimes
from speccompile.runtime.rounds.decode_loop import DecodeLoop
from speccompile.runtime.rounds.drafter_state import PersistentState
from speccompile.runtime.rounds.host_drafts import Proposer, find_proposer
from speccompile.runtime.text.chat import apply_chat_template, read_chat
from speccompile.runtime.text.tokenizer import IncrementalDetokenizer, Tokenizer
from speccompile.runtime.text_stream import TextStream
from speccompile.runtime.window_invariance import WindowInvariance, cached_invariance, check_invariance, warn_of

Prompt = str | Sequence[int]
Setting = float | Sequence[float | None] | None
"""A sampling option: one value for all prompts, or a sequence with one for each."""
Chat = tuple[str, dict[str, str]]
"""A chat template, and the special tokens that it may write."""


class Bundle:
    """A target and its drafter, ready to generate. It runs one generation at a time; open it again to run several."""

    def __init__(
        self,
        manifest: Manifest,
        engine: Engine,
        entry: EngineEntry,
        text: Tokenizer | None,
        chat: Chat | None,
        proposer: Proposer | None = None,
        tokenizer: str = "",
    ) -> None:
        """tokenizer: hash of the file of `text`, which files of persistent state name."""
        self.manifest, self.engine, self.entry, self.text, self.proposer = manifest, engine, entry, text, proposer
        self.load_seconds = 0.0
        """Seconds that `open` took, the hashes of `verify` included."""
        self.exactness = WindowInvariance()
        """Result of the check for window invariance on this machine; without widths if nothing was compared."""
        self.chat_template = chat
        """Chat template of the tokenizer, and its special tokens; None if there is none."""
        self.kept = PersistentState(engine, manifest, entry.graphs, tokenizer)
        """Persistent drafter state, which outlives a generation; false if the drafter has none."""
        self._loop = DecodeLoop(engine, manifest, on_device=entry.provider != "cpu", proposer=proposer)
        self.grammars = GrammarCompiler(manifest, None, "")
        """Compiler of constraints."""
        self._times: RecordedTimes | None = None
        self._lock = threading.Lock()
        self._owner: int | None = None
        self._serving = False

    @classmethod
    def open(
        cls,
        folder: str | Path,
        *,
        engine: str | None = None,
        threads: int | None = None,
        verify: bool = True,
        proposer: Proposer | None = None,
    ) -> "Bundle":
        """Open a bundle folder. Raise BundleError, EngineError or UsageError.

        engine: name of one of its engines, by default the first that can run here. threads: for the engine, by default
        one for each core that this process may use. verify: compare every file with its recorded hash. proposer: source
        of drafts instead of the bundle's own index, for bundles of drafter.kind or drafter.gate.kind retrieval. With a
        gate its drafts are used whenever it has any: it judges itself whether a match is long enough. The first time
        that an engine is opened on a processor, its target's logits are compared between windows of every width
        (`exactness`). If they differ, speculation may change tokens here: a warning says so, and `exact` is false.
        """
        start = perf_counter()
        opened = open_bundle(Path(folder), verify=verify)
        found = find_proposer(opened.folder, opened.manifest, proposer)
        entry = choose(opened.manifest, engine)
        running = open_engine(opened.folder, entry, threads, verify=verify, batch_size=opened.manifest.batch_size)
        text = Tokenizer(opened.path(names.TOKENIZER)) if opened.manifest.tokenizer else None
        chat = read_chat(opened.path(names.CHAT)) if names.CHAT in opened.hashes.files else None
        tokenizer = opened.hashes.files[names.TOKENIZER].blake3 if opened.manifest.tokenizer else ""
        bundle = cls(opened.manifest, running, entry, text, chat, found, tokenizer)
        if proposer is None and (seen := measured(opened.proof, entry.name, opened.manifest.depth)):
            bundle._loop.drafting.policy.expect(seen)
        bundle.grammars = GrammarCompiler(
            opened.manifest, opened.path(names.TOKENIZER) if tokenizer else None, tokenizer
        )
        if entry.provider == "cpu":
            known = cached_invariance(opened.folder, entry, running.threads)
            bundle.exactness = known or check_invariance(opened.folder, entry, running, opened.manifest)
            warn_of(bundle.exactness, entry.name)
        bundle._times = RecordedTimes.find(opened.folder, entry, running.threads)
        if bundle._times is not None and bundle._times.known is not None:
            bundle._loop.drafting.policy.expect_times(bundle._times.known)
        bundle.load_seconds = perf_counter() - start
        return bundle

    @property
    def exact(self) -> bool:
        """Return whether speculation never changes the output, by the drafting method and by the engine on this
        machine."""
        return self.manifest.exact and self.exactness.exact

    @property
    def kernels(self) -> str | None:
        """Code path of the kernels that graphs run on, "none" for ONNX Runtime's own; None unless the engine runs on
        the processor."""
        return native.kernels() if self.entry.provider == "cpu" else None

    @property
    def engine_name(self) -> str:
        """Name of the engine that runs."""
        return self.entry.name

    @property
    def speculative(self) -> bool:
        """Return whether the bundle can draft."""
        return self._loop.can_draft

    def reset(self) -> None:
        """Reset the persistent drafter state to that of a newly opened bundle. It decides how many drafts are accepted
        and never a token; most drafters have none. Raise EngineError in the middle of a stream."""
        with self._exclusive():
            self.kept.reset()

    def save_kept(self, path: str | Path) -> None:
        """Write the persistent drafter state into a file, for `load_kept` of this bundle or another with the same
        drafting method and vocabulary. An existing file is replaced at once, when the new one is complete. Raise
        UsageError if there is no such state or the file cannot be written, EngineError in the middle of a stream."""
        with self._exclusive():
            self.kept.save(Path(path))

    def load_kept(self, path: str | Path) -> None:
        """Load what `save_kept` wrote. Raise UsageError, with the states unchanged, for a file that is truncated or of
        another drafting method, vocabulary or shape; otherwise raise as `save_kept` does."""
        with self._exclusive():
            self.kept.load(Path(path))

    @contextmanager
    def _exclusive(self, *, serving: bool = False) -> Iterator[None]:
        """Hold the buffers exclusively. Raise EngineError if this thread holds them already, or a service, which may
        hold them for long and releases them on another thread than it acquired them on."""
        if self._serving:
            raise EngineError(
                "this bundle serves requests, and nothing else meanwhile",
                hint="submit to its service, close that first, or open the bundle a second time",
            )
        if self._owner == threading.get_ident():
            raise EngineError(
                "this bundle is in the middle of another stream",
                hint="finish or close that stream first, or open the bundle a second time",
            )
        with self._lock:  # other threads wait; a stream may move from one to the next, so no RLock
            self._owner, self._serving = None if serving else threading.get_ident(), serving
            try:
                yield
            finally:
                self._owner, self._serving = None, False
                if self._times is not None:
                    self._times.update(self._loop.drafting.policy.measured_times())

    def token_ids(self, prompt: Prompt, *, chat: bool = False) -> list[int]:
        """Return the prompt's tokens. Raise PromptError when it is empty, too long, or not of this vocabulary."""
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
        if self.chat_template is None:
            raise PromptError("this bundle's tokenizer has no chat template", hint="leave --chat out")
        messages = [{"role": "user", "content": prompt}]
        template, special_tokens = self.chat_template
        written = apply_chat_template(template, messages, special_tokens)
        return self.text.encode(written, special_tokens=False)  # the template writes them itself

    def constraint(self, kind: str, text: Any = "") -> Constraint:
        """Return a constraint for any number of generations of this bundle: see `GrammarCompiler.constraint`."""
        return self.grammars.constraint(kind, text)

    def generate(self, prompt: Prompt, **options: Any) -> Generation:
        """Generate from one prompt, a text or token ids. Options as in `generate_batch`, for one sequence."""
        _check_single(options)
        return self.generate_batch([prompt], **options)[0]

    def generate_batch(self, prompts: Sequence[Prompt], **options: Any) -> list[Generation]:
        """Generate from up to `batch_size` prompts together, of any lengths.

        max_new_tokens: maximum for each prompt, 128 by default. stop: texts before which a generation ends.
        autoregressive: one token a round, without drafts. adaptive: verify fewer drafts in a round, or none, while more
        would not pay by the times measured on this engine; off, every round has all of them. It never changes a token,
        and therefore does nothing where it could: with sampled drafts (at a temperature above 0), and if the bundle's
        drafting method is approximate. chat: apply the chat template to text prompts.
        stop_token_ids: tokens that end a generation like an end token of the target's; ignore_eos: those do not.
        logprobs: keep the log-probability of every new token; top_logprobs: number of most probable tokens to add.
        constraint: made by the method `constraint`; one for all prompts, or a sequence with one, or None, for each.

        For sampling, which greedy bundles refuse; one value, or a sequence with one for each prompt:
        temperature: 0, the default, is greedy: of the other options only repetition_penalty then makes a difference.
        repetition_penalty: of tokens that occurred before, as in transformers; 1, the default, is none.
        top_k, top_p, min_p: draw from the k most probable tokens (0: all), from the fewest that have this probability
        together (1: all), from those with this share of the best one's probability (0: all). All given options apply.
        seed: equal seeds give equal tokens, independent of the rest of the batch. None: the system's choice for each
        prompt, reported in the generation. num_return_sequences: for each prompt, each in its own batch slot; they
        share the prompt's seed and differ by their number. The result has the sequences of the first prompt first.
        Raises PromptError for a prompt that the bundle cannot take, UsageError for an option that it cannot.
        """
        batch = Batch(self, prompts, **options)
        for _ in batch.run():
            pass
        return batch.generations()

    def _generation(self, row: SequenceState, spent: GenerationTimes, *, speculative: bool) -> Generation:
        """Return the finished generation of a sequence."""
        mode = "speculative" if speculative else "autoregressive"
        return row.generation(spent, mode=mode, engine=self.engine_name, exact=self.exact, kernels=self.kernels)

    def serve(self, limits: Any = None, observer: Any = None) -> Any:
        """Take requests from any thread and run them together in the bundle's batch slots until the service is closed.
        Return a `speccompile.serving.scheduler.Service` of this bundle, with that room's `Limits` and `Observer`."""
        # Imported by name, like a plug-in: the serving room is built on the runtime, which does not depend on it.
        return import_module("speccompile.serving.scheduler").Service(self, limits, observer)

    def stream(self, prompt: Prompt, **options: Any) -> TextStream:
        """Return an iterator over pieces of text; it has `.generation` at its end. Options as in `generate`."""
        _check_single(options)
        if self.text is None:
            raise PromptError("this bundle has no tokenizer: there is no text to stream", hint="use generate")
        return TextStream(Batch(self, [prompt], **options))


class Batch:
    """One call: its sequences, and the time it took."""

    def __init__(
        self,
        bundle: Bundle,
        prompts: Sequence[Prompt],
        *,
        max_new_tokens: int = NEW_TOKENS,
        stop: Sequence[str] = (),
        autoregressive: bool = False,
        adaptive: bool = True,
        chat: bool = False,
        stop_token_ids: Sequence[int] = (),
        ignore_eos: bool = False,
        logprobs: bool = False,
        top_logprobs: int = 0,
        temperature: Setting = 0.0,
        top_k: Setting = None,
        top_p: Setting = None,
        min_p: Setting = None,
        repetition_penalty: Setting = 1.0,
        seed: Setting = None,
        num_return_sequences: int = 1,
        constraint: ConstraintOption = None,
        side_by_side: bool = True,
    ) -> None:
        """side_by_side: whether all sequences need a batch slot of the bundle at once."""
        manifest = bundle.manifest
        sequences = check_sequences(num_return_sequences, len(prompts), manifest if side_by_side else None)
        asked = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p,
                 "repetition_penalty": repetition_penalty, "seed": seed}  # fmt: skip
        samplings = row_samplings(manifest, len(prompts), sequences, asked)
        max_new_tokens = check_new_tokens(max_new_tokens)
        if stop and bundle.text is None:
            raise PromptError("this bundle has no tokenizer, so no text to stop at", hint="leave --stop out")
        self.bundle, self.speculative, self.adaptive = bundle, bundle.speculative and not autoregressive, adaptive
        self.seconds: list[float] = []
        """Seconds of the prefill, and of every round."""
        all_ids = [ids for prompt in prompts for ids in [bundle.token_ids(prompt, chat=chat)] * sequences]
        ends, top = (
            resolve_stop_token_ids(stop_token_ids, ignore_eos, manifest),
            check_top_logprobs(top_logprobs, manifest),
        )
        self.rows = []
        imposed = [each for each in bundle.grammars.per_prompt(constraint, len(prompts)) for _ in range(sequences)]
        room = (max_new_tokens, manifest.max_length, ends)
        for ids, sampling, each in zip(all_ids, samplings, imposed, strict=True):
            text = IncrementalDetokenizer(bundle.text, ids, stop) if bundle.text else None
            self.rows.append(SequenceState(ids, *room, text, sampling, logprobs, top, each))

    def run(self) -> Iterator[None]:
        """Run to the end, holding the bundle's buffers."""
        bundle = self.bundle
        with bundle._exclusive():
            start = perf_counter()
            for _ in bundle._loop.generate(self.rows, self.speculative, self.adaptive):
                self.seconds.append(perf_counter() - start)
                yield
                start = perf_counter()  # without the caller's time in between

    def generations(self) -> list[Generation]:
        seconds, loop = self.seconds, self.bundle._loop
        alone = loop.drafting.policy.autoregressive_seconds if len(self.rows) == 1 else None
        prefill, verify, draft = (loop.seconds[name] for name in ("prefill", "verify", "draft"))
        spent = GenerationTimes(sum(seconds), prefill, seconds[1:], verify, draft, autoregressive=alone)
        return [self.bundle._generation(row, spent, speculative=self.speculative) for row in self.rows]


def _check_single(options: dict[str, Any]) -> None:
    if (received := options.get("num_return_sequences", 1)) != 1:
        raise UsageError(
            f"num_return_sequences: received {received!r}, expected 1 where one generation comes back",
            hint="use generate_batch, which gives a list",
        )
