"""An index that is asked in C++: the drafts that Python's finds, and its words for what is wrong."""

import json
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from speccompile.bundle.manifest import canonical_json
from speccompile.errors import BundleError
from speccompile.index.files import FORMAT, HEADER, SEPARATOR
from speccompile.index.retrieval import POLICY, RetrievalPolicy, RetrievalProposer, write_policy
from tests.light.index_example import write_index
from tests.native.bundle_lines import Lines, outcome

TRIALS, TEXTS = 120, 30
LARGEST = 2**20
"""Of a vocabulary: three bytes of each token are used."""


def drawn_chunk(dice: Random, vocabulary: list[int]) -> np.ndarray:
    """Draw documents of few tokens, so that ends of texts occur again and again; the last need not end."""
    tokens = [dice.choice([*vocabulary, SEPARATOR]) for _ in range(dice.choice([1, 5, 40, 300]))]
    return np.array(tokens, np.uint32)


def drawn_text(dice: Random, chunks: list[np.ndarray], vocabulary: list[int]) -> list[int]:
    chunk = dice.choice(chunks).tolist()
    start = dice.randrange(len(chunk))
    found = [token for token in chunk[start : start + dice.randrange(1, 20)] if token != SEPARATOR]
    more = [dice.choice(vocabulary)] * dice.choice([0, 0, 1])
    return [dice.choice(vocabulary), *found, *more][-dice.randrange(1, 25) :]


@pytest.mark.parametrize("branching", [0, 1, 2])
def test_it_proposes_what_python_proposes(lines: Lines, tmp_path: Path, branching: int) -> None:
    dice, n_found = Random(branching), 0
    for trial in range(TRIALS):
        folder = tmp_path / str(trial)
        folder.mkdir()
        first = dice.choice([0, LARGEST - 60])
        vocabulary = list(range(first, first + dice.choice([1, 2, 3, 50])))
        chunks = [drawn_chunk(dice, vocabulary) for _ in range(dice.choice([1, 1, 2, 3]))]
        policy = RetrievalPolicy(
            dice.choice([1, 2, 3]), dice.choice([3, 6, 16]), dice.choice([1, 2, 7, 1000]), branching
        )
        write_index(folder, chunks, "", LARGEST)
        write_policy(folder, policy)
        drafts, depth = dice.choice([1, 4, 16]), dice.choice([1, 3, 8])
        python = RetrievalProposer.open(folder, drafts, depth)
        texts = [drawn_text(dice, chunks, vocabulary) for _ in range(TEXTS)]
        expected = [[*map(list, python.propose(text))] for text in texts]
        assert lines.ask("propose", texts, index=str(folder), drafts=drafts, depth=depth) == expected
        n_found += sum(bool(tokens) for tokens, _ in expected)
    assert n_found > TRIALS * TEXTS / 4


def edit(folder: Path, **changes: Any) -> None:
    path = folder / HEADER
    path.write_bytes(canonical_json(json.loads(path.read_bytes()) | changes))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-4])


REFUSED = {
    "no header": lambda folder: (folder / HEADER).unlink(),
    "another format": lambda folder: edit(folder, format=2),
    "no JSON": lambda folder: (folder / HEADER).write_text("{"),
    "a chunk that is missing": lambda folder: (folder / "1.tokens").unlink(),
    "suffixes that are missing": lambda folder: (folder / "0.suffixes").unlink(),
    "a chunk that was truncated": lambda folder: cut(folder / "1.tokens"),
    "no policy": lambda folder: (folder / POLICY).unlink(),
}


@pytest.fixture
def index(tmp_path: Path) -> Path:
    write_index(tmp_path, [np.arange(5, dtype=np.uint32), np.arange(3, dtype=np.uint32)], "", LARGEST)
    write_policy(tmp_path, RetrievalPolicy(1, 3, 9, 0))
    return tmp_path


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused_is_refused_in_the_same_words(lines: Lines, index: Path, what: str) -> None:
    REFUSED[what](index)
    ours = outcome(lambda: lines.ask("propose", [[1, 2]], index=str(index), drafts=4, depth=4))
    assert ours == outcome(lambda: RetrievalProposer.open(index, 4, 4))
    assert ours[0] == "BundleError"


@pytest.mark.parametrize(
    ("file", "data", "message"),
    [
        (HEADER, [], "no header of an index"),
        (HEADER, {"format": FORMAT}, "no header of an index: 'chunks'"),
        (HEADER, {"format": FORMAT, "chunks": []}, "no header of an index: chunks are \\[\\]"),
        (HEADER, {"format": FORMAT, "chunks": [5, -3]}, "no header of an index: a chunk of -3 tokens"),
        (HEADER, {"format": FORMAT, "chunks": [5, 2**40]}, "no header of an index: a chunk of"),
        (POLICY, {"fewest": 1}, "no policy of an index: 'most' is None"),
        (POLICY, {"fewest": 0, "most": 3, "occurrences": 9, "branching": 0}, "no policy of an index: 'fewest' is 0"),
        (POLICY, {"fewest": 1, "most": 3, "occurrences": "9", "branching": 0}, "'occurrences' is '9'"),
    ],
)
def test_what_is_no_index_is_named(lines: Lines, index: Path, file: str, data: Any, message: str) -> None:
    (index / file).write_bytes(canonical_json(data))
    with pytest.raises(BundleError, match=message):
        lines.ask("propose", [[1, 2]], index=str(index), drafts=4, depth=4)


def test_suffixes_that_lead_nowhere_are_survived(lines: Lines, index: Path) -> None:
    """Files are compared with their hashes when a bundle is opened, unless that is not asked for."""
    (index / "0.suffixes").write_bytes(b"\xff" * 20)
    assert lines.ask("propose", [[1, 2], [4]], index=str(index), drafts=4, depth=4) == [[[], []], [[], []]]
