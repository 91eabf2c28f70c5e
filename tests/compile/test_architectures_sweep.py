"""The table of architectures is true: a handful of its rows again, and attempts that come to no end."""

from dataclasses import replace

import pytest

from scripts.architectures.attempt import attempt
from scripts.architectures.configurations import CORRECTIONS
from scripts.architectures.row import Row
from scripts.architectures.sweep import sweep
from scripts.architectures.table import read_rows

pytestmark = pytest.mark.sweep("whole attempts in processes of their own")

AGAIN = ("deepseek_v3", "mamba2", "bart", "roc_bert", "mistral3", "roberta", "musicgen")
"""Quick ones: experts and latent attention, states, no position_ids, an encoder's sibling, a multimodal one, refused,
impossible."""


@pytest.mark.parametrize("model_type", AGAIN)
def test_what_the_table_says_is_found_again(model_type, tmp_path):
    known = replace(read_rows()[model_type], processors=())
    assert replace(attempt(model_type, tmp_path), threads=known.threads) == known


def test_many_experts_of_a_token_are_exact(tmp_path, monkeypatch):
    """ONNX Runtime adds eight experts of one token in another order than those of two, and six scores by place."""
    monkeypatch.setitem(CORRECTIONS, "qwen3_moe", {"num_experts": 12, "num_experts_per_tok": 8})
    row = attempt("qwen3_moe", tmp_path)
    assert (row.status, row.exact, row.loose) == ("proven", True, ())


def test_an_attempt_that_takes_too_long_is_stopped_and_said():
    assert list(sweep(["llama"], 1, 1, 6)) == [Row("llama", "", "broken", "stopped after 1 seconds")]


def test_an_attempt_without_memory_stops_nothing_else():
    (row,) = sweep(["llama"], 1, 120, 0)
    assert (row.model_type, row.status) == ("llama", "broken")
    assert row.reason
