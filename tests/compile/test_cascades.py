"""Cascades in eager torch, round after round, against transformers and a lookup in plain Python."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from speccompile.compiler.prove.lookups import Lookup as Found
from speccompile.compiler.step.draft import Accepted, Drafted, Drafter
from speccompile.compiler.step.draft.cascade import TEXT, LookupGate, LookupTail
from speccompile.compiler.step.draft.fixed import FixedDrafter
from speccompile.compiler.step.draft.language import DecoderReader
from speccompile.compiler.step.draft.lookup import Lookup
from speccompile.compiler.step.draft.vertical import VerticalCascade
from speccompile.tree import chain, from_branching
from tests import zoo
from tests.compile.drafter_graphs import BATCH, ROWS, decoder, model
from tests.compile.table_drafter import TableDrafter, settings
from tests.compile.test_prompt_lookup import TREES

VOCABULARY, NGRAM = 5, 3
TEXT_SHAPE = (BATCH, ROWS)
TABLE = torch.randn(VOCABULARY, VOCABULARY, generator=torch.Generator().manual_seed(0))


@given(text=st.lists(st.integers(0, 3), min_size=1, max_size=24), ngram=st.integers(1, 5), tree=st.sampled_from(TREES))
def test_a_lookup_tells_the_length_of_the_longest_match(text, ngram, tree):
    found, matched = Found(tree, ngram).find(text)
    assert bool(found) == bool(matched)
    sizes = (n for n in range(1, ngram + 1) for end in range(n, len(text)) if text[end - n : end] == text[-n:])
    assert matched == max(sizes, default=0)


def looked_up(text: list[int], ngram: int, tokens: int) -> tuple[list[int], int]:
    return Found(chain(tokens), ngram).find(text)


class Stopping(Drafter):
    """As a table drafter in a chain, that stops where the bonus token says: before draft 0, 1, .."""

    def __init__(self, table: torch.Tensor, tokens: int, candidates: int = 0) -> None:
        super().__init__()
        self.inner = TableDrafter(table, chain(tokens), candidates)
        self.shape, self.tokens, self.candidates = chain(tokens), tokens, candidates

    def states(self):
        return []

    def forward(self, accepted, states):
        drafted = self.inner(accepted, states)
        n_drafts = drafted.window[:, 0] % (self.tokens + 1)
        return drafted._replace(n_total=torch.where(accepted.n_path > 0, 1 + n_drafts, 1))


def follow(drafter: Drafter, text: list[int], chunk: int) -> Drafted:
    """Return what it gives after the text, read in chunks beside an idle row; its last token is the bonus token."""
    states = [torch.full(state.shape, 99, dtype=state.dtype) for state in drafter.states()]
    for start in range(0, max(1, len(text) - 1), chunk):
        path = text[start : min(start + chunk, len(text) - 1) + 1]
        n_path, length = torch.tensor([len(path) - 1, 0]), torch.tensor([start, 3])
        rows = torch.tensor([path, [1] * len(path)])
        own = {"settings": settings(2), "uniforms": torch.rand(2, drafter.tokens)} if drafter.candidates else {}
        found = drafter(Accepted(rows, n_path, length, **own), states)
        states = found.states
    assert found.n_total[1] == 1, "an idle row drafts nothing"
    return found


TEXTS = st.lists(st.integers(0, VOCABULARY - 1), min_size=2, max_size=24)


@given(text=TEXTS, chunk=st.integers(1, 9), stops=st.booleans(), draws=st.booleans())
def test_a_tail_continues_the_text_and_the_drafts(text, chunk, stops, draws):
    own, tail = 3, 2
    kind = Stopping if stops else lambda table, tokens, count: TableDrafter(table, chain(tokens), count)
    drafter = LookupTail(kind(TABLE, own, 4 * draws), Lookup(chain(tail), NGRAM), TEXT_SHAPE, VOCABULARY)
    found = follow(drafter, text, chunk)
    count = text[-1] % (own + 1) if stops else own
    tokens = found.window[0].tolist()
    expected, _ = looked_up([*text, *tokens[1 : 1 + count]], NGRAM, tail)
    assert tokens[0] == text[-1]
    assert found.n_total[0] == 1 + count + (tail if expected else 0)
    if expected:
        assert tokens[1 + count : 1 + count + tail] == expected
    if not draws:
        assert tokens[1 : 1 + count] == best_chain(text[-1], count)
        return
    for node in range(own + tail):
        ids, probs = found.ids[0, node].tolist(), found.probs[0, node].tolist()
        assert len(set(ids)) == len(ids)
        if node < count:
            order = TABLE[tokens[node]].argsort(descending=True)[:4]
            assert ids == order.tolist()
            np.testing.assert_allclose(probs, torch.softmax(TABLE[tokens[node]][order], 0), rtol=1e-5)
        elif node < count + tail:
            assert (ids[0], probs) == (tokens[1 + node], [1.0, 0.0, 0.0, 0.0])


def best_chain(token: int, count: int) -> list[int]:
    found = [token]
    for _ in range(count):
        found.append(int(TABLE[found[-1]].argmax()))
    return found[1:]


@given(text=TEXTS, chunk=st.integers(1, 9), match=st.integers(1, 3), copied=st.integers(1, 5), draws=st.booleans())
def test_a_gate_lets_long_matches_through(text, chunk, match, copied, draws):
    own = TableDrafter(TABLE, chain(3), 4 * draws)
    drafter = LookupGate(own, Lookup(chain(copied), NGRAM), match, TEXT_SHAPE, VOCABULARY)
    found = follow(drafter, text, chunk)
    looked, matched = looked_up(text, NGRAM, copied)
    tokens, total = found.window[0].tolist(), int(found.n_total[0])
    assert len(tokens) == 1 + max(3, copied)
    if matched >= match:
        assert tokens[1:total] == looked
        if draws:
            assert found.ids[0, :copied, 0].tolist() == looked
            assert found.probs[0, :copied, 0].tolist() == [1.0] * copied
    else:
        assert total == 4
        if not draws:
            assert tokens[1:4] == best_chain(text[-1], 3)


@given(text=TEXTS, match=st.integers(1, 3))
def test_a_gate_fills_a_constant_tree(text, match):
    tree = from_branching([2, 1])
    drafter = LookupGate(TableDrafter(TABLE, tree), Lookup(tree, NGRAM), match, TEXT_SHAPE, VOCABULARY)
    found = follow(drafter, text, 4)
    _, matched = looked_up(text, NGRAM, 1)
    if matched >= match:
        expected, _ = Found(tree, NGRAM).find(text)
    else:
        expected = follow(TableDrafter(TABLE, tree), text, 4).window[0, 1:].tolist()
    assert found.window[0, 1:].tolist() == expected


def test_of_what_a_gate_and_a_tail_look_up_in_there_is_one_text():
    inner = VerticalCascade(repetitive_reader("llama"), 3, Lookup(chain(2), NGRAM), 2, TEXT_SHAPE)
    tail = LookupTail(inner, Lookup(chain(2), NGRAM), TEXT_SHAPE, zoo.VOCABULARY)
    both = LookupGate(tail, Lookup(chain(4), NGRAM), 2, TEXT_SHAPE, zoo.VOCABULARY)
    assert [state.name for state in both.states()].count(TEXT) == 1


def greedy(name: str, prompt: list[int], count: int) -> list[int]:
    """Return a text that a model itself continues, which soon goes round: what is looked up there is often right."""
    text = list(prompt)
    for _ in range(count):
        text.append(int(model_logits(name, text)[-1].argmax()))
    return text


@torch.no_grad()
def model_logits(name: str, text: list[int]) -> torch.Tensor:
    return MODELS[name](torch.tensor([text])).logits[0]


def repetitive(network: torch.nn.Module) -> torch.nn.Module:
    """Return the model, changed in place so that it says few tokens, and its last one counts most: it soon goes
    round."""
    network.lm_head.weight[12:] = 0
    for layer in network.model.layers:
        layer.self_attn.o_proj.weight *= 0.3
    return network


def repetitive_reader(name: str) -> DecoderReader:
    found = decoder(name)
    repetitive(found.model)
    return DecoderReader(found)


MODELS = {name: repetitive(model(name)) for name in ("llama", "mistral")}


def drafted_for_in_python(name, text, tokens, guesses, passes, lenience=1.0):
    """Return drafts of a language model for which a lookup drafts, by one forward of transformers for every token."""
    drafts: list[int] = []

    def says(guess: int) -> bool:
        logits = model_logits(name, [*text, *drafts])[-1]
        return bool(logits[guess] >= logits.max() + np.log(lenience))

    for _ in range(passes):
        drafts.append(int(model_logits(name, [*text, *drafts])[-1].argmax()))
        found, _ = looked_up([*text, *drafts], NGRAM, guesses)
        for guess in found:
            if not says(guess):
                break
            drafts.append(guess)
    drafts.append(int(model_logits(name, [*text, *drafts])[-1].argmax()))
    return drafts[:tokens]


def whole(texts: list[list[int]]) -> Accepted:
    """Return whole texts, of which the last token is the bonus token; shorter ones are padded."""
    width = max(map(len, texts))
    path = torch.tensor([text + [0] * (width - len(text)) for text in texts])
    n_path = torch.tensor([len(text) - 1 for text in texts])
    return Accepted(path, n_path, torch.zeros_like(n_path), torch.arange(width))


def states_of(drafter: Drafter) -> list[torch.Tensor]:
    return [torch.zeros(state.shape, dtype=state.dtype) for state in drafter.states()]


@torch.no_grad()
@pytest.mark.parametrize(("name", "lenience"), [("llama", 1.0), ("mistral", 1.0), ("llama", 0.2)])
def test_a_model_takes_of_what_was_looked_up_what_it_would_have_said(name, lenience):
    guesses, passes, tokens = 3, 3, 8
    drafter = VerticalCascade(
        repetitive_reader(name), tokens, Lookup(chain(guesses), NGRAM), passes, TEXT_SHAPE, lenience
    )
    counts = set()
    for seed in range(6):
        random = np.random.default_rng(seed)
        texts = [greedy(name, random.integers(0, zoo.VOCABULARY, 4).tolist(), n) for n in (14, 18)]
        found = drafter(whole(texts), states_of(drafter))
        for row, text in enumerate(texts):
            expected = drafted_for_in_python(name, text, tokens, guesses, passes, lenience)
            total = int(found.n_total[row])
            assert found.window[row, :total].tolist() == [text[-1], *expected]
            counts.add(total - 1)
    assert len(counts) > 1, "sometimes it takes what was looked up, and sometimes not"
    assert max(counts) > passes + 1


MAKERS: dict[str, Callable[[], Drafter]] = {
    "tail": lambda: LookupTail(
        FixedDrafter(repetitive_reader("llama"), chain(3)), Lookup(chain(2), NGRAM), TEXT_SHAPE, zoo.VOCABULARY
    ),
    "tail, stops early": lambda: LookupTail(
        FixedDrafter(repetitive_reader("llama"), chain(3), fallback=0.01),
        Lookup(chain(2), NGRAM), TEXT_SHAPE, zoo.VOCABULARY,
    ),
    "gate": lambda: LookupGate(
        FixedDrafter(repetitive_reader("llama"), chain(3)), Lookup(chain(5), NGRAM), 2, TEXT_SHAPE, zoo.VOCABULARY
    ),
    "drafted for": lambda: VerticalCascade(
        repetitive_reader("llama"), 5, Lookup(chain(3), NGRAM), 2, TEXT_SHAPE
    ),
    "drafted for, with a tail": lambda: LookupTail(
        VerticalCascade(repetitive_reader("llama"), 3, Lookup(chain(3), NGRAM), 2, TEXT_SHAPE),
        Lookup(chain(2), NGRAM), TEXT_SHAPE, zoo.VOCABULARY,
    ),
}  # fmt: skip


@torch.no_grad()
@pytest.mark.parametrize("name", MAKERS)
def test_catching_up_in_decoding_is_as_good_as_reading_everything(name):
    """Compare the next window with the one over the whole text, whichever drafts were accepted."""
    drafter, random = MAKERS[name](), np.random.default_rng(0)
    texts = [greedy("llama", [5, 9, 7, 3, 11], 4), [8, 8, 4]]
    drafted, counts = drafter(whole(texts), states_of(drafter)), []
    for step in range(7):
        totals = drafted.n_total.tolist()
        n_accepted = [total - 1 if step % 2 else int(random.integers(total)) for total in totals]
        lengths = torch.tensor([len(text) - 1 for text in texts])
        paths = []
        for row, (text, count) in enumerate(zip(texts, n_accepted, strict=True)):
            path = [*drafted.window[row, : count + 1].tolist(), int(random.choice(text))]
            text += path[1:]
            paths.append(path + [0] * (drafter.tokens - count))
        given = Accepted(torch.tensor(paths), torch.tensor(n_accepted) + 1, lengths, torch.arange(drafter.catch_up))
        drafted = drafter(given, drafted.states)
        again = drafter(whole(texts), states_of(drafter))
        assert torch.equal(drafted.n_total, again.n_total)
        for row, total in enumerate(drafted.n_total.tolist()):
            assert torch.equal(drafted.window[row, :total], again.window[row, :total])
        counts += n_accepted
    assert max(counts) > 2
