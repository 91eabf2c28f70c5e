"""Folders of DFlash heads, in every dialect -> one description; and what is refused, by file and name."""

from functools import partial

import pytest
import torch
from transformers import LlamaConfig

from speccompile.drafters.find import find_head, find_kind
from speccompile.drafters.folder import read_folder
from speccompile.errors import CheckpointError, RecipeError
from tests.heads import dflash as heads
from tests.light.read_heads import change_config, change_tensors, read_as

TARGET = LlamaConfig(vocab_size=96, hidden_size=64, num_hidden_layers=4)
SLIDING = {"layer_types": ["sliding_attention", "full_attention"], "use_sliding_window": True, "sliding_window": 6}
PLAIN = {
    "block_size": 5, "mask_token_id": 5, "sample_from_anchor": False, "causal": False, "causal_sliding": True,
    "window_from_anchor": False, "input_embedding_scale": 1.0, "output_multiplier": 1.0,
    "final_logit_softcapping": 0.0,
}  # fmt: skip


@pytest.fixture
def read():
    return partial(read_as, "dflash")


def with_tensor(folder, name, shape=(4,)):
    return change_tensors(folder, {name: torch.ones(shape)})


@pytest.mark.parametrize(
    ("dialect", "switches", "taps", "tokens"),
    [
        ("zlab", {}, ("layers.0.output", "layers.1.output"), 4),
        ("speculators", {"window_from_anchor": True}, ("layers.1.input", "layers.2.input"), 4),
        ("transformers", {"causal_sliding": False}, ("layers.0.output", "layers.1.output"), 4),
        ("deepspec", {"sample_from_anchor": True}, ("layers.0.input", "layers.1.output"), 5),
    ],
)
def test_every_dialect_is_the_same_head(read, tmp_path, dialect, switches, taps, tokens):
    folder = getattr(heads, dialect)(tmp_path / dialect, TARGET)
    head, expected = read(folder), read(heads.zlab(tmp_path / "expected", TARGET))
    assert head.evidence
    assert head.taps == taps
    assert head.switches == PLAIN | switches
    assert head.layers == expected.layers
    own = {"embed_tokens.weight", "lm_head.weight"} if dialect == "deepspec" else set()
    assert head.tensors.keys() == expected.tensors.keys() | own
    assert (head.tokens, head.default_tokens) == (tokens, tokens)
    assert find_kind(folder) == "dflash"


@pytest.mark.parametrize("dialect", ["zlab", "speculators"])
def test_dflash2_adds_convolutions_and_a_selector(read, tmp_path, dialect):
    if dialect == "zlab":
        folder = heads.dflash2(tmp_path / "head", TARGET)
    else:
        folder = heads.speculators(tmp_path / "head", TARGET, "dflash2")
    head = read(folder)
    assert head.switches.items() >= heads.CONVOLUTION.items()
    assert {"layers.1.mlp_conv.base_kernel", "candidate_selector.successor_codebook.weight"} <= head.tensors.keys()
    assert head.switches["causal_sliding"] is (dialect == "zlab")
    assert find_kind(folder) == "dflash"


def test_an_own_vocabulary_and_an_own_mask_row(read, tmp_path):
    head = read(heads.speculators(tmp_path / "own", TARGET, draft_size=24))
    assert head.draft_vocabulary_size == 24
    head = read(with_tensor(heads.zlab(tmp_path / "mask", TARGET), "mask_embedding", (64,)))
    assert "mask_embedding" in head.tensors


@pytest.mark.parametrize(
    ("write", "windows", "switches"),
    [
        (lambda folder: heads.zlab(folder, TARGET, **SLIDING), (6, 0), {}),
        (lambda folder: heads.zlab(folder, TARGET, is_causal=False, **SLIDING), (6, 0), {"causal_sliding": False}),
        (lambda folder: heads.zlab(folder, TARGET, is_causal=True), (0, 0), {"causal": True}),
        (
            lambda folder: heads.zlab(folder, TARGET, own={"use_swa": True, "swa_window_size": 8}),
            (8, 8),
            {"causal_sliding": False},
        ),
        (
            lambda folder: change_config(
                heads.zlab(folder, TARGET, use_sliding_window=True, sliding_window=6, max_window_layers=1),
                layer_types=None,
            ),
            (0, 6),
            {},
        ),
        (lambda folder: heads.transformers(folder, TARGET, **SLIDING), (7, 0), {"causal_sliding": False}),
        (
            lambda folder: heads.speculators(folder, TARGET, transformer_layer_config=SLIDING),
            (7, 0),
            {"window_from_anchor": True},
        ),
        (
            lambda folder: heads.speculators(
                folder, TARGET, transformer_layer_config=SLIDING, sliding_window_non_causal=True
            ),
            (7, 0),
            {"window_from_anchor": True, "causal_sliding": False},
        ),
    ],
)
def test_windows_and_causality_as_each_library_means_them(read, tmp_path, write, windows, switches):
    head = read(write(tmp_path / "head"))
    assert head.layers.windows == windows
    assert head.switches == PLAIN | switches


def test_scales_may_stand_in_either_section(read, tmp_path):
    nested = {"input_embedding_scale": 2.0, "output_multiplier": 0.5, "block_size": 7}
    head = read(heads.zlab(tmp_path / "head", TARGET, own=nested, final_logit_softcapping=30.0))
    assert head.switches == PLAIN | nested | {"final_logit_softcapping": 30.0}
    assert head.tokens == 6


def test_the_recipe_may_say_otherwise(read, tmp_path):
    folder = heads.zlab(tmp_path / "head", TARGET)
    taps = ("layers.0.output", "layers.3.output")
    head = read(folder, taps, {"sample_from_anchor": True, "block_size": 4})
    assert (head.taps, head.tokens) == (taps, 4)
    change_config(folder, "dflash_config", target_layer_ids=None)
    assert read(folder, taps).taps == taps
    with pytest.raises(RecipeError, match=r"drafter.switches.norm_output: received an unknown switch, expected one of"):
        read(folder, taps, {"norm_output": True})
    with pytest.raises(CheckpointError, match=r"target_layer_ids: received nothing, expected the layers that the head"):
        read(folder)


def test_other_targets_are_refused(read, tmp_path):
    folder = heads.zlab(tmp_path / "head", TARGET)
    with pytest.raises(RecipeError, match=r"received a head for a target with 4 layers \(says .*config.json\)"):
        read(folder, layers=6)
    with pytest.raises(RecipeError, match=r"received a head for a target with a vocabulary of 96"):
        read(folder, vocabulary_size=100)
    with pytest.raises(CheckpointError, match=r"'fc.weight' of shape \[64, 128\], expected \[64, 64\]|taps"):
        read(heads.zlab(tmp_path / "ids", TARGET, own={"target_layer_ids": [1]}))


@pytest.mark.parametrize(
    ("section", "more", "message"),
    [
        ("", {"surprise": 1}, r"config.json: received the unknown switch surprise: 1"),
        ("dflash_config", {"surprise": 1}, r"received the unknown switch dflash_config.surprise: 1"),
        ("", {"block_size": None}, r"config.json: block_size: received nothing, expected a whole number from 1 on"),
        ("", {"block_size": 1}, r"block_size: received 1, expected a whole number from 2 on"),
        ("dflash_config", {"mask_token_id": 96}, r"mask_token_id: received 96, expected a token from 0 to 95"),
        ("dflash_config", {"mask_token_id": None}, r"mask_token_id: received nothing"),
        ("dflash_config", {"target_layer_ids": [0, 9]}, r"target_layer_ids: received layer id 9, expected ids from -1"),
        ("dflash_config", {"shift_label": True}, r"shift_label: received True, expected False: only Domino's heads"),
        ("", {"is_causal": "yes"}, r"is_causal: received 'yes', expected true, false or null"),
        ("", SLIDING | {"sliding_window": None}, r"sliding_window: received nothing, expected a whole number"),
        ("", SLIDING | {"sliding_window": 3}, r"sliding_window: received 3, expected one that holds a block of 5"),
        ("", SLIDING | {"use_sliding_window": False}, r"use_sliding_window: received False, expected true where"),
    ],
)
def test_configs_are_refused_by_file_and_key(read, tmp_path, section, more, message):
    folder = change_config(heads.zlab(tmp_path / "head", TARGET), section, **more)
    with pytest.raises(CheckpointError, match=message):
        read(folder)


def test_tensors_are_refused_by_file_and_name(read, tmp_path):
    folder = with_tensor(heads.zlab(tmp_path / "extra", TARGET), "aux_norm.weight")
    with pytest.raises(CheckpointError, match=r"model.safetensors: received the tensor 'aux_norm.weight'"):
        read(folder)
    folder = heads.zlab(tmp_path / "file", TARGET)
    torch.save(torch.ones(64), folder / "mask_embedding.pt")
    with pytest.raises(CheckpointError, match=r"mask_embedding.pt: received the masks' embedding in a file of its own"):
        read(folder)
    folder = change_tensors(heads.speculators(tmp_path / "d2t", TARGET, draft_size=24), {"d2t": None})
    with pytest.raises(CheckpointError, match=r"received 'lm_head.weight' over 24 tokens and no 'd2t'"):
        read(folder)
    with pytest.raises(CheckpointError, match=r"received a DFlash2 head over 24 tokens, expected all of the target's"):
        read(heads.speculators(tmp_path / "selecting", TARGET, "dflash2", draft_size=24))


@pytest.mark.parametrize(
    ("change_folder", "message"),
    [
        (lambda folder: change_config(folder, architectures=["Gemma4DSparkModel"]), "DeepSpec for Gemma 4 .*Gemma's"),
        (lambda folder: with_tensor(folder, "layers.0.self_attn.sinks"), "attention sinks of a drafter are not"),
        (lambda folder: with_tensor(folder, "layers.0.self_attn.qkv_proj.weight"), "fused projections"),
        (lambda folder: with_tensor(folder, "layers.0.self_attn.g_proj.weight"), "gated attention"),
    ],
)
def test_variants_are_refused_by_name(tmp_path, change_folder, message):
    folder = change_folder(heads.zlab(tmp_path / "head", TARGET))
    with pytest.raises(CheckpointError, match=message):
        find_head(read_folder(folder))


def test_dspark_is_another_kind(read, tmp_path):
    folder = heads.specforge(tmp_path / "head", TARGET)
    with pytest.raises(CheckpointError, match=r"received a folder of drafter.kind dspark \(dialect SpecForge: .*\)"):
        read(folder)
