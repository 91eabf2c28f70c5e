"""Open bundle: prompts in, text or tokens out."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any, Unpack

from speccompile import native
from speccompile.bundle.acceptance import measured
from speccompile.bundle.manifest import EngineEntry, Manifest
from speccompile.bundle.reader import OpenedBundle, open_bundle
from speccompile.errors import PromptError
from speccompile.machine.keywords import checks_keywords, named_after
from speccompile.progress import heartbeat
from speccompile.runtime.adapters import Adapters
from speccompile.runtime.async_twins import AsyncTwins
from speccompile.runtime.batch import Batch
from speccompile.runtime.constraints import CompileLimits, Constraint, GrammarCompiler
from speccompile.runtime.description import describe, describe_first
from speccompile.runtime.devices.engine import Engine
from speccompile.runtime.devices.engines import choose, open_engine
from speccompile.runtime.engine_owner import EngineOwner
from speccompile.runtime.first_times import prepare_rounds
from speccompile.runtime.generation import Generation, SequenceState
from speccompile.runtime.generation_options import (
    CHAT_KEYWORDS,
    GenerationKeywords,
    GenerationOptions,
    resolve_options,
)
from speccompile.runtime.images.bundle_prompts import open_reader, read_messages, read_prompt
from speccompile.runtime.images.reader import ImageReader, SeenPrompt
from speccompile.runtime.options import check_opening, check_single
from speccompile.runtime.round_times import RecordedTimes
from speccompile.runtime.rounds.decode_loop import DecodeLoop
from speccompile.runtime.rounds.drafter_state import PersistentState
from speccompile.runtime.rounds.host_drafts import WRITER, Proposer, find_proposer
from speccompile.runtime.servable import Servable
from speccompile.runtime.session_key import SessionKey
from speccompile.runtime.sessions import Sessions
from speccompile.runtime.shipped_prefixes import ShippedPrefixes
from speccompile.runtime.sources import source_tokens
from speccompile.runtime.text.prompts import SHORTEN, ChatTemplate, Prompt, check_token_ids
from speccompile.runtime.text.tokenizer import Tokenizer
from speccompile.runtime.text_bundle import TextBundle
from speccompile.runtime.text_proposer import TextProposer
from speccompile.runtime.text_stream import TextStream
from speccompile.runtime.timings import GenerationTimes
from speccompile.runtime.transcription.long_form import Transcription
from speccompile.runtime.transcription.transcribe import TranscribeKeywords, begin_transcription
from speccompile.runtime.transcription.transcript import Transcript
from speccompile.runtime.window_invariance import (
    WindowInvariance,
    cached_invariance,
    check_invariance,
    engine_key,
    warn_of,
)

__all__ = ["Bundle", "Prompt"]


@named_after("Bundle")
class Bundle(EngineOwner, AsyncTwins, Servable):
    """A target and its drafter, ready to generate. It runs one generation at a time; open it again to run several.

    A context manager: it is closed at the end of a `with` block.
    """

    def __new__(cls, *arguments: Any, **_: Any) -> "Bundle":
        """Raise TypeError for the path of a bundle, and for all else that users may give: `open` opens one."""
        if not arguments or not isinstance(arguments[0], Manifest):
            received = describe_first(arguments)
            raise TypeError(f"Bundle: received {received}, expected Bundle.open(PATH) or load(PATH)")
        return super().__new__(cls)

    def __init__(
        self,
        manifest: Manifest,
        engine: Engine,
        entry: EngineEntry,
        text: Tokenizer | None,
        chat: ChatTemplate | None,
        proposer: Proposer | None = None,
        tokenizer: str = "",
    ) -> None:
        """tokenizer: hash of the file of `text`, which files of persistent state name."""
        loop = DecodeLoop(engine, manifest, on_device=entry.provider != "cpu", proposer=proposer, graphs=entry.graphs)
        kept = PersistentState(engine, manifest, entry.graphs, tokenizer)
        adapters = Adapters(engine, entry.graphs or manifest.graphs)
        super().__init__(engine, loop, kept, Sessions(loop, manifest, SessionKey({}, "")), adapters)
        self.manifest, self.entry, self.text, self.proposer = manifest, entry, text, proposer
        self._writer: TextProposer | None = None  # of its own
        self.load_seconds = 0.0
        """Seconds that `open` took, the hashes of `verify` included."""
        self.exactness = WindowInvariance()
        """Result of the check for window invariance on this machine; without widths if nothing was compared."""
        self.chat_template = chat
        """Chat template of the tokenizer, and its special tokens; None if there is none."""
        self.vision: ImageReader | None = None
        """Reader of prompts with pictures; None of a bundle that sees none."""
        self.grammars = GrammarCompiler(manifest, None, "")
        """Compiler of constraints."""

    @classmethod
    @checks_keywords("Bundle.open")
    def open(
        cls,
        folder: str | Path,
        *,
        engine: str | None = None,
        threads: int | None = None,
        verify: bool = True,
        proposer: Proposer | None = None,
        signed_by: str | Path | None = None,
        image_cache: int | None = None,
    ) -> "Bundle":
        """Open a bundle folder. Raise BundleError, EngineError or UsageError.

        engine: name of one of its engines, by default the first that can run here. threads: for the engine, by default
        one for each core that this process may use. verify: compare every file with its recorded hash, unless it was
        compared on this machine and is unchanged since; `signed_by` compares all. proposer: source of drafts instead of
        the bundle's own index, for bundles of drafter.kind or drafter.gate.kind retrieval; it judges itself whether a
        match is long enough. signed_by: file of a public key of minisign that must have signed the bundle. image_cache:
        MiB of rows of encoded pictures that are kept, by default 256. The first time that an engine is opened on a
        processor, its target's logits are compared between windows of every width (`exactness`). If they differ,
        speculation may change tokens here: a warning says so, and `exact` is false.
        """
        check_opening(folder, verify=verify, threads=threads, image_cache=image_cache, signed_by=signed_by)
        with heartbeat(f"opening {folder}"):
            start = perf_counter()
            opened = open_bundle(Path(folder), verify=verify, skip_verified=True, signed_by=signed_by)
            bundle = cls._open(opened, engine, threads, verify=verify, proposer=proposer, cache=image_cache)
            bundle.load_seconds = perf_counter() - start
            return bundle

    @classmethod
    def _open(
        cls, opened: OpenedBundle, engine: str | None, threads: int | None, *, verify: bool, proposer: Proposer | None,
        cache: int | None,
    ) -> "Bundle":  # fmt: skip
        entry, writer = choose(opened.manifest, engine), None
        if proposer is None and (opened.folder / WRITER).is_dir():
            writer = cls.open_writer(opened.folder, opened.manifest.tokens, entry.name, threads)
        found, rounds = find_proposer(opened.folder, opened.manifest, proposer or writer), entry.round
        running = open_engine(opened.folder, rounds, threads, verify=verify, batch_size=opened.manifest.batch_size)
        texts = TextBundle.of(opened)
        tokenizer = texts.grammars.tokenizer_hash
        bundle = cls(opened.manifest, running, rounds, texts.text, texts.chat_template, found, tokenizer)
        if proposer is None and (seen := measured(opened.proof, entry.name, opened.manifest.depth)):
            bundle._loop.drafting.policy.expect(seen)
        bundle.grammars, bundle._writer = texts.grammars, writer
        bundle.vision = open_reader(opened, entry, running.threads, texts.text, cache)
        key = engine_key(opened.folder, entry, running.threads)
        if entry.provider == "cpu":
            bundle.exactness = cached_invariance(key) or check_invariance(key, running, opened.manifest)
            warn_of(bundle.exactness, entry.name)
        key_of_states = SessionKey.of(opened, entry, tokenizer, exact=bundle.exactness.exact)
        bundle._sessions = Sessions(bundle._loop, opened.manifest, key_of_states)
        bundle._prefixes = ShippedPrefixes.of(opened, entry.name, bundle._sessions, bundle._loop.serves)
        bundle._times = RecordedTimes.find(key, running.threads)
        if bundle._times is not None:
            prepare_rounds(bundle._loop, opened.manifest, bundle._times)
            bundle.kept.reset()
        return bundle

    @classmethod
    def open_writer(
        cls, folder: Path, tokens: int, engine: str | None = None, threads: int | None = None
    ) -> TextProposer:
        """Open the drafter over texts inside the bundle in `folder`, among whose hashes are those of its files. tokens:
        that it drafts a round. Raise as `open`."""
        return TextProposer(cls.open(folder / WRITER, engine=engine, threads=threads, verify=False), folder, tokens)

    def close(self) -> None:
        """Release what `EngineOwner.close` does, of its drafter over texts too, and end the constraints' process."""
        super().close()
        self.grammars.close()
        if self._writer is not None:
            self._writer.close()

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

    def __repr__(self) -> str:
        return describe(self.manifest, self.entry, closed=self._use.closed)

    def token_ids(self, prompt: Prompt, *, chat: bool = False) -> list[int]:
        """Return the prompt's tokens. Raise PromptError when it is empty, too long, or not of this vocabulary."""
        return self._prompt(prompt, chat=chat, hint=SHORTEN).ids

    def source_token_ids(self, source: Prompt, language: str | None = None) -> list[int]:
        """Return the tokens of a source, for a target with an encoder. Raise as `generate`."""
        return source_tokens(source, language, self.manifest, self.text)

    def _prompt(self, prompt: Prompt | None, *, chat: bool, hint: str | None, images: Sequence[Any] = ()) -> SeenPrompt:
        """Return the prompt's tokens and pictures. hint: as for `check_token_ids`."""
        seen = read_prompt(prompt, images, self.vision, self.text, self.chat_template, chat=chat)
        check_token_ids(seen.ids, self.manifest, self.text, hint=hint)
        return seen

    def chat_token_ids(
        self, messages: Sequence[Mapping[str, Any]], chat_template_kwargs: Mapping[str, Any] | None = None
    ) -> list[int]:
        """Return the tokens of a conversation in the chat template, up to where the model's answer begins.

        messages: {"role", "content"} each, as in OpenAI's API. chat_template_kwargs: further variables of the template,
        such as tools or enable_thinking. Raise PromptError for wrong messages, for what the template refuses, for a
        bundle without a template, and as `token_ids`.
        """
        ids, _ = self._conversation(messages, chat_template_kwargs, GenerationOptions())
        check_token_ids(ids, self.manifest, self.text)
        return ids

    def _conversation(
        self, messages: Sequence[Mapping[str, Any]], variables: Mapping[str, Any] | None, options: GenerationOptions
    ) -> tuple[list[int], GenerationOptions]:
        """Return the tokens of a conversation, and the options of its answer, with the pictures of the messages."""
        ids, images = read_messages(messages, options.images, self.vision, self.text, self.chat_template, variables)
        return ids, options if images is options.images else replace(options, images=images)

    def constraint(self, kind: str, text: Any = "", limits: CompileLimits | None = None) -> Constraint:
        """Return a constraint for any number of generations of this bundle: see `GrammarCompiler.constraint`."""
        return self.grammars.constraint(kind, text, limits or CompileLimits())

    def generate(
        self,
        prompt: Prompt | None = None,
        options: GenerationOptions | None = None,
        **keywords: Unpack[GenerationKeywords],
    ) -> Generation:
        """Generate from one prompt, a text or token ids. A target with an encoder reads the option `source`.
        Options, here as in all methods below: fields of `GenerationOptions`, in one object or as keywords, which
        replace the object's. Raise as `generate_batch`."""
        return self._one(prompt, resolve_options("Bundle.generate", options, keywords))

    def generate_batch(
        self,
        prompts: Sequence[Prompt | None] = (),
        options: GenerationOptions | None = None,
        **keywords: Unpack[GenerationKeywords],
    ) -> list[Generation]:
        """Generate from up to `batch_size` prompts, or sources, together, of any lengths.

        Raise PromptError for a prompt that the bundle cannot take, UsageError for a value that it cannot, TypeError for
        an unknown keyword, EngineError in the middle of a stream, while a service runs, and once closed.
        """
        return Batch(self, prompts, resolve_options("Bundle.generate_batch", options, keywords)).run_whole()

    def transcribe(
        self,
        sound: Any,
        language: str | None = None,
        options: GenerationOptions | None = None,
        **keywords: Unpack[TranscribeKeywords],
    ) -> Transcript:
        """Return what is spoken in one sound, for a target that hears. sound: see `GenerationOptions.audio`, of any
        length up to four hours. language: by default what the target detects. `max_new_tokens`, of each window, is by
        default what the bundle holds; several temperatures are tried in turn. Other keywords are fields of `LongForm`.
        Raise as `generate_batch`."""
        return begin_transcription(self, "Bundle.transcribe", sound, language, options, keywords).result()

    def stream_transcript(
        self,
        sound: Any,
        language: str | None = None,
        options: GenerationOptions | None = None,
        **keywords: Unpack[TranscribeKeywords],
    ) -> Transcription:
        """Return an iterator over the segments of a transcript, as `transcribe` writes them; its `result` is the whole
        transcript. Raise as `transcribe`."""
        return begin_transcription(self, "Bundle.stream_transcript", sound, language, options, keywords)

    def reuse_last(self) -> None:
        """Let the next generation of one prompt reuse the prefix that it shares with the last generation, without
        reading it again. A generation in between discards it; recurrent states can only be reused as a whole."""
        with self._exclusive():
            self._loop.resume = self._loop.left

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        options: GenerationOptions | None = None,
        *,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        **keywords: Unpack[GenerationKeywords],
    ) -> Generation:
        """Generate the answer to a conversation. messages, chat_template_kwargs: see `chat_token_ids`; the template is
        always applied. Raise as that and as `generate_batch`."""
        chosen = resolve_options("Bundle.chat", options, keywords, CHAT_KEYWORDS)
        return self._one(*self._conversation(messages, chat_template_kwargs, chosen))

    def stream(
        self,
        prompt: Prompt | None = None,
        options: GenerationOptions | None = None,
        **keywords: Unpack[GenerationKeywords],
    ) -> TextStream:
        """Return an iterator over the pieces of text of one generation, which begins with its first piece. Raise as
        `generate_batch`."""
        return self._streamed(prompt, resolve_options("Bundle.stream", options, keywords))

    def stream_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        options: GenerationOptions | None = None,
        *,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        **keywords: Unpack[GenerationKeywords],
    ) -> TextStream:
        """Return an iterator over the pieces of the answer to a conversation: `chat` as `stream`."""
        chosen = resolve_options("Bundle.stream_chat", options, keywords, CHAT_KEYWORDS)
        return self._streamed(*self._conversation(messages, chat_template_kwargs, chosen))

    def _one(self, prompt: Prompt | None, options: GenerationOptions) -> Generation:
        check_single(options.num_return_sequences)
        return Batch(self, [prompt], options).run_whole()[0]

    def _streamed(self, prompt: Prompt | None, options: GenerationOptions) -> TextStream:
        check_single(options.num_return_sequences)
        if self.text is None:
            raise PromptError("this bundle has no tokenizer: there is no text to stream", hint="use generate")
        stream = TextStream(Batch(self, [prompt], options))
        self._streams.add(stream)
        return stream

    def _generation(self, row: SequenceState, spent: GenerationTimes, *, speculative: bool) -> Generation:
        """Return the finished generation of a sequence."""
        mode = "speculative" if speculative else "autoregressive"
        return row.generation(spent, mode=mode, engine=self.engine_name, exact=self.exact, kernels=self.kernels)
