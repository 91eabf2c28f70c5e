#!/usr/bin/env python3
"""onnxruntime-genai, with models of its own builder.

The builder's defaults are blocks of 32 weights and int8 activations (accuracy level 4), the embedding in float32.
"""

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from common import LONGEST, Form, Generated, Peer, main, stepwise, with_positions, with_tokenizer

FORMS = {
    "fp32": Form("fp32", "fp32", {"precision": "fp32"}),
    "int8, block 32": Form("8-bit", "int8-32", {"precision": "int8", "block_size": 32}),
    "int8, block 128": Form("8-bit", "int8-128", {"precision": "int8", "block_size": 128}),
    "int4, block 32": Form("4-bit", "int4-32", {"precision": "int4", "block_size": 32}),
    "int4, block 128": Form("4-bit", "int4-128", {"precision": "int4", "block_size": 128}),
    "int4, block 128, its default caches": Form(
        "long", "int4-128-long", {"precision": "int4", "block_size": 128}, {"positions": LONGEST}
    ),
}


def prepare(model: Path, folder: Path, form: Form) -> None:
    extra = [f"{name}={value}" for name, value in form.conversion.items() if name != "precision"]
    with TemporaryDirectory() as scratch:
        source = with_tokenizer(model, Path(scratch) / "model")
        if form.settings:  # its tables of angles are as long as the config says
            source = with_positions(source, Path(scratch) / "longer", **form.settings)
        command = [
            *(sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", source, "-o", folder),
            *("-p", form.conversion["precision"], "-e", "cpu", "-c", Path(scratch) / "cache"),
            *(["--extra_options", *extra] if extra else []),
        ]
        subprocess.run([str(part) for part in command], check=True, stdout=sys.stderr)


class Session:
    def __init__(self, folder: Path, form: Form, threads: int) -> None:
        import onnxruntime_genai

        self._library = onnxruntime_genai
        config = onnxruntime_genai.Config(str(folder))
        options = {"intra_op_num_threads": threads, "inter_op_num_threads": 1}
        config.overlay(json.dumps({"model": {"decoder": {"session_options": options}}}))
        self._model = onnxruntime_genai.Model(config)

    def generate(self, prompt: list[int], new_tokens: int) -> Generated:
        total = len(prompt) + new_tokens
        parameters = self._library.GeneratorParams(self._model)
        parameters.set_search_options(do_sample=False, min_length=total, max_length=total)
        generator = self._library.Generator(self._model, parameters)

        def following() -> int:
            generator.generate_next_token()
            return int(generator.get_next_tokens()[0])

        def first() -> int:
            generator.append_tokens(prompt)
            return following()

        return stepwise(first, following, new_tokens)


if __name__ == "__main__":
    main(Peer("onnxruntime-genai", FORMS, prepare, Session))
