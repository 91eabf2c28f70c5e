"""Constraints over tokenizers: those of which llguidance knows no bytes are refused before a build."""

import json

import pytest
from llguidance.hf import from_tokenizer
from transformers import PreTrainedTokenizerFast

from speccompile.errors import RecipeError
from speccompile.recipe import load_recipe, make_plan

REPLACE = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
FUSE, FALLBACK = {"type": "Fuse"}, {"type": "ByteFallback"}
LEVEL = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
DECODERS = [
    (None, "none"),
    ({"type": "WordPiece", "prefix": "##", "cleanup": True}, "WordPiece"),
    ({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}, "Metaspace"),
    ({"type": "Sequence", "decoders": [REPLACE, FUSE]}, "Replace, Fuse"),
    ({"type": "Sequence", "decoders": [REPLACE, FALLBACK, FUSE]}, None),
    (LEVEL, None),
    ({"type": "Sequence", "decoders": [LEVEL, FUSE]}, None),
]


@pytest.mark.parametrize(("decoder", "named"), DECODERS)
def test_a_tokenizer_without_bytes_is_refused_for_constraints(decoder, named, make_recipe, tmp_path):
    file = tmp_path / "target" / "tokenizer.json"
    path = make_recipe(constraints=True)
    file.write_text(json.dumps(json.loads(file.read_text()) | {"decoder": decoder}))
    if named is None:
        assert make_plan(load_recipe(path)).constraints
        return
    with pytest.raises(RecipeError, match=f"constraints: received true for .* has the decoder {named}, expected"):
        make_plan(load_recipe(path))
    assert not make_plan(load_recipe(path, ["constraints=false"])).constraints
    with pytest.raises(ValueError, match="decoder"):  # as it would say at the first constraint
        from_tokenizer(PreTrainedTokenizerFast(tokenizer_file=str(file)))
