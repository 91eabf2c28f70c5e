#!/usr/bin/env python3
"""OpenVINO GenAI, with models that optimum-intel exports and nncf compresses.

Where a processor has AMX or bfloat16 instructions OpenVINO computes in bfloat16 unless it is asked for float32. The
column fp32 asks for it, and for a float32 cache; the others run at their defaults, and in float32. The embedding and
the head stay at 8 bits in int4, nncf's default, but for "head too".
"""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from common import Form, Generated, Pair, Peer, main, side_by_side, with_tokenizer

FLOAT32 = {"INFERENCE_PRECISION_HINT": "f32"}
INT8 = {"bits": 8, "sym": True}


def _int4(group_size: int, **more: Any) -> dict[str, Any]:
    return {"bits": 4, "sym": True, "group_size": group_size, "ratio": 1.0} | more


FORMS = {
    "f32": Form("fp32", "f32", settings=FLOAT32 | {"KV_CACHE_PRECISION": "f32"}),
    "int8": Form("8-bit", "int8", INT8),
    "int8, computes in f32": Form("8-bit", "int8", INT8, FLOAT32),
    "int4, group 128": Form("4-bit", "int4-128", _int4(128)),
    "int4, group 128, computes in f32": Form("4-bit", "int4-128", _int4(128), FLOAT32),
    "int4, group 64, computes in f32": Form("4-bit", "int4-64", _int4(64), FLOAT32),
    "int4, group 32, computes in f32": Form("4-bit", "int4-32", _int4(32), FLOAT32),
    "int4, group 128, head too": Form("4-bit", "int4-128-all", _int4(128, all_layers=True)),
    "int4, group 128, head too, computes in f32": Form("4-bit", "int4-128-all", _int4(128, all_layers=True), FLOAT32),
    "int4, group 128, head too, its default caches": Form("long", "int4-128-all", _int4(128, all_layers=True)),
}


def prepare(model: Path, folder: Path, form: Form) -> None:
    from optimum.intel import OVModelForCausalLM, OVWeightQuantizationConfig

    config = OVWeightQuantizationConfig(**form.conversion) if form.conversion else None
    exported = OVModelForCausalLM.from_pretrained(
        model, export=True, compile=False, load_in_8bit=False, quantization_config=config
    )
    exported.save_pretrained(folder)


def prepare_with_tokenizer(model: Path, folder: Path, form: Form) -> None:
    """Write what `prepare` writes and a tokenizer, which a pipeline with a drafter insists on and nothing here uses."""
    from openvino import save_model
    from openvino_tokenizers import convert_tokenizer
    from transformers import PreTrainedTokenizerFast

    prepare(model, folder, form)
    with TemporaryDirectory() as scratch:
        source = PreTrainedTokenizerFast.from_pretrained(with_tokenizer(model, Path(scratch) / "model"))
        names = ("openvino_tokenizer.xml", "openvino_detokenizer.xml")
        for graph, name in zip(convert_tokenizer(source, with_detokenizer=True), names, strict=True):
            save_model(graph, folder / name)


class Session:
    def __init__(self, folder: Path, form: Form, threads: int, drafter: Path | None = None, drafts: int = 0) -> None:
        import openvino_genai

        self._library, self._drafts = openvino_genai, drafts
        settings = {"INFERENCE_NUM_THREADS": threads} | form.settings
        more = {"draft_model": openvino_genai.draft_model(str(drafter), "CPU", **settings)} if drafter else {}
        self._pipeline = openvino_genai.LLMPipeline(str(folder), "CPU", **settings, **more)

    def generate(self, prompt: list[int], new_tokens: int) -> Generated:
        import numpy as np
        import openvino

        config = self._library.GenerationConfig()
        config.max_new_tokens, config.ignore_eos, config.do_sample = new_tokens, True, False
        config.apply_chat_template = False
        config.eos_token_id, config.stop_token_ids = 0, {0}  # ignored, but refused where the model has none
        if self._drafts:
            config.num_assistant_tokens = self._drafts
        ids = np.array([prompt], np.int64)
        given = self._library.TokenizedInputs(openvino.Tensor(ids), openvino.Tensor(np.ones_like(ids)))
        made = self._pipeline.generate(given, config)
        times = made.perf_metrics
        first, total = times.get_ttft().mean / 1e3, times.get_generate_duration().mean / 1e3
        return Generated(list(made.tokens[0]), first, total)


if __name__ == "__main__":
    pair = Pair(side_by_side(prepare_with_tokenizer), lambda folder, form, threads, drafts: Session(
        folder / "target", form, threads, folder / "drafter", drafts))  # fmt: skip
    main(Peer("openvino-genai", FORMS, prepare, Session, pair=pair))
