"""A toy target and a toy drafter behind the contract, in numpy: whole bundles that generate in milliseconds.

The engine is as unkind as the contract allows: whatever a graph leaves undefined is filled with values that the loop
must never use, and a row that was not committed fails the test when it is read.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

from speccompile.bundle import BundleWriter, Manifest
from speccompile.bundle.manifest import canonical_json
from speccompile.contract import Graph, Tensor
from speccompile.runtime import Bundle
from speccompile.runtime.engine import Array, Run
from speccompile.runtime.text import Text
from tests.light.bundle_example import cpu_entry, manifest

VOCABULARY = 258
"""All bytes, then <s> and </s>."""

JSON_KEYS = [
    "text",
    "token_ids",
    "prompt_tokens",
    "rounds",
    "mean_accepted",
    "seconds",
    "tokens_per_second",
    "finish_reason",
    "mode",
    "engine",
]
"""What `generate --json` prints, in order, as the design documents it."""

TEMPLATE = "{{ bos_token }}{{ messages[0].content }}!"
UNWRITTEN = -1


def target(tokens: Sequence[int]) -> int:
    """The toy target: the token after `tokens`, any byte. All of them matter."""
    return (5 * sum(tokens) + 3 * tokens[-1] + len(tokens)) % 256


def drafts(tokens: Sequence[int], count: int) -> list[int]:
    """The toy drafter: often right, sometimes wrong, sometimes with less to say."""
    text = list(tokens)
    while len(text) < len(tokens) + count and text[-1] % 11:
        text.append(target(text) if text[-1] % 4 else target(text) + 1)
    return text[len(tokens) :]


def autoregressive(prompt: Sequence[int], count: int) -> list[int]:
    """What the target alone makes of a prompt."""
    text = list(prompt)
    for _ in range(count):
        text.append(target(text))
    return text[len(prompt) :]


def path_lengths(prompt: Sequence[int], count: int, tokens: int) -> list[int]:
    """Tokens verified in each round until there are `count` new ones, the prefill's single one included."""
    text, lengths = [*prompt, target(prompt)], []
    while len(text) < len(prompt) + count:
        guessed, right = drafts(text, tokens), autoregressive(text, tokens + 1)
        accepted = next((n for n, token in enumerate(guessed) if token != right[n]), len(guessed))
        lengths.append(accepted + 1)
        text += right[: accepted + 1]
    return lengths


def toy_manifest(*, speculative: bool = True, fused: bool = False, **changes: object) -> Manifest:
    """The manifest of a toy bundle; `changes` as in `bundle_example.manifest`."""
    names = ("step", "verify") if fused else ("verify", "draft")
    graphs = tuple(Graph(name, (Tensor("length", "int64", (1,), "length", "io"),), ()) for name in names)
    graphs = graphs if speculative else graphs[:1]
    entries = tuple(
        cpu_entry(graphs, {graph.name: f"graphs/{graph.name}.onnx" for graph in graphs}, name)
        for name in ("onnxruntime-cpu", "other")
    )
    drafting = {} if speculative else {"tokens": 0, "catch_up": 0}
    defaults = {"vocabulary_size": VOCABULARY, "eos_token_ids": (), "max_length": 160}
    return manifest(**(defaults | drafting | {"graphs": graphs, "engines": entries} | changes))


class ToyEngine:
    """Implements `speccompile.runtime.engine.Engine`."""

    def __init__(self, manifest: Manifest) -> None:
        self.batch, self.tokens = manifest.batch_size, manifest.tokens
        self.graphs = {graph.name for graph in manifest.graphs}
        self.runs: list[str] = []
        self.into_next = False
        self.verified: list[list[tuple[int, int]]] = []
        """Of each verify, every row's n_given and length."""
        rows = manifest.max_length + max(manifest.prefill_chunk, self.tokens + 1) + self.tokens + 1
        self.caches = {name: np.full((self.batch, rows), UNWRITTEN) for name in ("target", "drafter")}
        self._arrays: dict[tuple[str, tuple[int, ...]], Array] = {}

    def array(self, buffer: str, shape: tuple[int, ...]) -> Array:
        return self._arrays.setdefault((buffer, shape), np.zeros(shape, np.int64))

    def has(self, graph: str) -> bool:
        return graph in self.graphs

    def address(self, buffer: str) -> int:
        return self.caches[buffer].ctypes.data

    def bind(self, graph: str, widths: Mapping[str, int], optional: Sequence[str] = ()) -> Run:
        verify, draft = self._verify_row, self._draft_row
        row_steps = {"verify": [verify], "draft": [draft], "step": [verify, draft]}[graph]

        def run() -> None:
            self.runs.append(graph)
            self.into_next = graph == "step"
            if verify in row_steps:
                rows = zip(self._counts("n_given").tolist(), self._counts("length").tolist(), strict=True)
                self.verified.append(list(rows))
            for row_step in row_steps:
                for row in range(self.batch):
                    row_step(row, widths)

        return run

    def _counts(self, name: str) -> Array:
        return self.array(name, (self.batch,))

    def _verify_row(self, row: int, widths: Mapping[str, int]) -> None:
        width = widths["window"]
        window = self.array("window", (self.batch, width))[row].tolist()
        given, total, length = (int(self._counts(name)[row]) for name in ("n_given", "n_total", "length"))
        n_path, bonus = 0, 0
        if given:
            assert given <= total <= width, "more tokens than the window holds"
            assert total - given < widths["logit_rows"], "more drafts than logits"
            text = self._committed("target", row, length)
            n_path = given
            while n_path < total and window[n_path] == target(text + window[:n_path]):
                n_path += 1
            bonus = target(text + window[:n_path])
        self._commit("target", row, length, window[:n_path], width)
        self.array("path", (self.batch, width + 1))[row] = [*window[:n_path], bonus, *[0] * (width - n_path)]
        self._counts("n_path")[row] = n_path

    def _draft_row(self, row: int, widths: Mapping[str, int]) -> None:
        """As a drafter with its own caches does it, which lag the target's."""
        path = self.array("path", (self.batch, widths["window"] + 1))[row].tolist()
        n_path, length = int(self._counts("n_path")[row]), int(self._counts("length")[row])
        start = max(0, n_path - (widths["catch_up"] - 1))
        text = self._committed("drafter", row, length + start) + path[start : n_path + 1] if n_path else path[:1]
        guessed = drafts(text, self.tokens)
        rows = path[start : n_path + 1] + guessed[:-1]
        self._commit("drafter", row, length + start, rows, widths["catch_up"] + self.tokens - 1)
        padding = [0] * (self.tokens - len(guessed))
        window, total = ("next_window", "next_total") if self.into_next else ("window", "n_total")
        self.array(window, (self.batch, self.tokens + 1))[row] = [path[n_path], *guessed, *padding]
        self._counts(total)[row] = 1 + len(guessed)

    def _committed(self, name: str, row: int, length: int) -> list[int]:
        text: list[int] = self.caches[name][row, :length].tolist()
        assert UNWRITTEN not in text, f"a row of the {name} was read that was never committed"
        return text

    def _commit(self, name: str, row: int, length: int, tokens: Sequence[int], width: int) -> None:
        assert length + width <= self.caches[name].shape[1], f"the {name} writes past the end of its buffer"
        self.caches[name][row, length : length + width] = UNWRITTEN
        self.caches[name][row, length : length + len(tokens)] = tokens


def toy_tokenizer() -> Tokenizer:
    """One token a byte. <s> begins every text."""
    alphabet = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "<s>", "</s>"]
    tokenizer = Tokenizer(models.BPE(vocab={name: index for index, name in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A", None, [("<s>", 256)])
    return tokenizer


def toy_bundle(text: Text | None = None, **changes: object) -> Bundle:
    """A bundle that lies in no folder."""
    made = toy_manifest(**changes)  # type: ignore[arg-type]
    return Bundle(made, ToyEngine(made), made.engines[0], text, None)


def write_toy_bundle(output: Path, *, tokenizer: bool = True, chat: bool = True, **changes: object) -> Path:
    """The folder of a toy bundle. Its graphs are no ONNX files: `ToyEngine` must stand in for ONNX Runtime."""
    made = toy_manifest(tokenizer=tokenizer, **changes)  # type: ignore[arg-type]
    with BundleWriter(output) as writer:
        for graph in made.graphs:
            file = writer.folder / f"graphs/{graph.name}.onnx"
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(b"graph")
        if tokenizer:
            (writer.folder / "tokenizer").mkdir()
            toy_tokenizer().save(str(writer.folder / "tokenizer" / "tokenizer.json"))
        if tokenizer and chat:
            special = {"bos_token": "<s>", "eos_token": "</s>"}
            chat_json = canonical_json({"template": TEMPLATE, "special_tokens": special})
            (writer.folder / "tokenizer" / "chat.json").write_bytes(chat_json)
        writer.finish(made, {}, {})
    return output
