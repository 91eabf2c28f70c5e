#!/usr/bin/env python3
"""Measure speccompile, CTranslate2 (the engine of faster-whisper), whisper.cpp and ONNX Runtime's own graphs
(onnxruntime-genai's builder) on one Whisper, and the first two on one corrector: a table.

    scripts/peers/setup FOLDER ctranslate2 whisper_cpp onnxruntime
    .venv/bin/python scripts/peers/speech.py FOLDER [--rounds 3]

Both models are random and of the size of Whisper's base and T5's small; they are made in FOLDER/speech and kept. The
Whisper's later layers add little, so that a drafter with its encoder and first layer often agrees; the corrector, a
BART made as scripts/examples/corrector.py, copies its source. Every generation has a process of its own, one thread,
and as many new tokens as any other; all engines take turns in each round. whisper.cpp's head is its embedding, so its
tokens are others; its library is that of the package pywhispercpp.

"encoder" is the time until the first token, "tokens/s" the speed behind it, both medians over rounds.
"""

import argparse
import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

ROOT = str(Path(__file__).resolve().parents[2])
sys.path.insert(0, ROOT)  # of scripts.examples, which makes the corrector

TOKENS, SOURCE = 96, 100
VOCABULARY, END, START, PROMPT = 51865, 50257, 50258, [50258, 50363]
WHISPER, CORRECTOR, PRECISIONS = "whisper", "corrector", ("float32", "int8")
AGREEMENT = 0.0165
"""Factor of what the decoder's layers behind the first add: the larger, the less its drafter agrees. At this one it
names the target's next token in 85 of 100 places."""
CTRANSLATE2, WHISPER_CPP, ONNXRUNTIME = PEERS = ("ctranslate2", "whisper_cpp", "onnxruntime")
"""Engines beside ours, each with an environment of this name."""
CASES = (
    *((WHISPER, engine, each) for engine in PEERS for each in PRECISIONS),
    *((WHISPER, drafter, each) for each in PRECISIONS for drafter in ("none", "model")),
    *((CORRECTOR, CTRANSLATE2, each) for each in PRECISIONS),
    *((CORRECTOR, drafter, each) for each in PRECISIONS for drafter in ("none", "source")),
)


def make_models(folder: Path) -> None:
    """Write both models, and the drafter of the Whisper."""
    import torch
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    from scripts.examples.corrector import copying_model

    copying_model(list(range(32128)), 512, layers=6, heads=8, ffn=2048).save_pretrained(folder / CORRECTOR)
    torch.manual_seed(0)
    config = WhisperConfig(
        vocab_size=VOCABULARY, d_model=512, encoder_layers=6, decoder_layers=6, encoder_attention_heads=8,
        decoder_attention_heads=8, encoder_ffn_dim=2048, decoder_ffn_dim=2048, tie_word_embeddings=False,
        eos_token_id=END, pad_token_id=END, bos_token_id=END, decoder_start_token_id=START,
    )  # fmt: skip
    model = WhisperForConditionalGeneration(config).eval()
    for layer in model.model.decoder.layers[1:]:
        for part in (layer.self_attn.out_proj, layer.encoder_attn.out_proj, layer.fc2):
            part.weight.data *= AGREEMENT
    for name, rule in {
        "suppress_tokens": [END], "begin_suppress_tokens": [END], "no_timestamps_token_id": PROMPT[1],
        "is_multilingual": False, "decoder_start_token_id": START, "eos_token_id": END, "pad_token_id": END,
    }.items():  # fmt: skip
        setattr(model.generation_config, name, rule)
    model.save_pretrained(folder / WHISPER)
    model.model.decoder.layers = model.model.decoder.layers[:1]
    model.config.decoder_layers = 1
    model.save_pretrained(folder / "drafter")


def convert(folder: Path, name: str, target: Path) -> None:
    """Write CTranslate2's form of a model. Its vocabulary is made up: nothing that is measured reads words."""
    from ctranslate2.converters.transformers import _MODEL_LOADERS
    from transformers import BartForConditionalGeneration, WhisperForConditionalGeneration

    kind = WhisperForConditionalGeneration if name == WHISPER else BartForConditionalGeneration
    model = kind.from_pretrained(folder / name)
    model.config.normalize_before = False  # which its loader reads of a BART, and newer configs no longer have
    loader = _MODEL_LOADERS[type(model.config).__name__]
    words = [f"<{token}>" for token in range(model.config.vocab_size)]
    spec = loader.get_model_spec(model)
    if name == WHISPER:
        named = {START: "startoftranscript", END: "endoftext", PROMPT[1]: "notimestamps", 50362: "nocaptions"}
        for token, word in named.items():
            words[token] = f"<|{word}|>"
        spec.config.suppress_ids, spec.config.suppress_ids_begin, spec.config.lang_ids = [END], [END], []
        spec.config.alignment_heads = [(5, 0)]
        spec.register_vocabulary(words)
    else:
        words[0], words[1], words[2] = "<s>", "</s>", "<unk>"
        spec.config.bos_token = spec.config.decoder_start_token = "<s>"
        spec.config.eos_token, spec.config.unk_token = "</s>", "<unk>"
        spec.register_source_vocabulary(words)
        spec.register_target_vocabulary(words)
    spec.validate()
    spec.optimize()
    target.mkdir()
    spec.save(str(target))


def build_bundle(folder: Path, name: str, drafter: str, precision: str, target: Path) -> None:
    from speccompile.compiler.from_recipe import build

    drafters = {
        "none": {"kind": "none"},
        "model": {"kind": "model", "model": str(folder / "drafter"), "tokens": 4},
        "source": {"kind": "prompt_lookup", "over": "source", "tokens": 12},
    }
    words = {"target": precision} | ({"drafter": "int8"} if drafter == "model" else {})
    recipe = {
        "name": name, "target": {"model": str(folder / name)}, "drafter": drafters[drafter], "precision": words,
        "cache": {"max_length": 120}, "prove": {"max_new_tokens": 8},
    }  # fmt: skip
    build(recipe | ({"source": {"max_length": 110}} if name == CORRECTOR else {}), target, prove=False)


def run_ours(name: str, drafter: str, bundle: Path) -> dict[str, Any]:
    import numpy as np

    from speccompile.runtime import Bundle

    def given(seed: int) -> dict[str, Any]:
        if name == WHISPER:
            return {"audio": np.random.default_rng(seed).normal(size=(80, 3000)).astype(np.float32) * 0.3}
        return {"source": source()[seed:]}

    with Bundle.open(bundle, threads=1) as opened:
        settings = {"autoregressive": True} if drafter == "none" else {}
        opened.generate(**given(1), max_new_tokens=16, **settings)  # of another source: one that lies there is kept
        made = opened.generate(**given(0), max_new_tokens=TOKENS, **settings)
    speed = (len(made.token_ids) - 1) / (made.seconds - made.prefill_seconds)
    return {
        "first": made.prefill_seconds, "speed": speed, "tokens": made.token_ids, "accepted": made.acceptance_length,
    }  # fmt: skip


def run_theirs(name: str, precision: str, model: Path) -> dict[str, Any]:
    import ctranslate2
    import numpy as np

    settings = {"device": "cpu", "compute_type": precision, "intra_threads": 1, "inter_threads": 1}
    if name == WHISPER:
        engine = ctranslate2.models.Whisper(str(model), **settings)
        features = np.random.default_rng(0).normal(size=(1, 80, 3000)).astype(np.float32) * 0.3
        view, more = ctranslate2.StorageView.from_array(features), {"suppress_blank": False, "suppress_tokens": [END]}

        def generate(count: int) -> list[int]:
            most = max(2 * count, len(PROMPT) + count)  # it writes at most half of its length
            made = engine.generate(view, [PROMPT], beam_size=1, max_length=most, **more)
            found: list[int] = made[0].sequences_ids[0]
            return found
    else:
        engine = ctranslate2.Translator(str(model), **settings)
        words = [[f"<{token}>" for token in source()]]

        def generate(count: int) -> list[int]:
            made = engine.translate_batch(words, beam_size=1, min_decoding_length=count, max_decoding_length=count)
            return [int(word.strip("<>")) for word in made[0].hypotheses[0]]

    generate(4)
    times, tokens = [], list[int]()
    for count in (1, TOKENS):
        start = perf_counter()
        tokens = generate(count)
        times.append(perf_counter() - start)
    return {"first": times[0], "speed": (len(tokens) - 1) / (times[1] - times[0]), "tokens": tokens, "accepted": None}


def prepare(folder: Path, case: tuple[str, str, str], made: Path) -> None:
    """Write what an engine reads of a model in `folder`."""
    from scripts.peers import whisper_cpp, whisper_onnxruntime

    name, engine, precision = case
    if engine == CTRANSLATE2:
        convert(folder, name, made)
    elif engine == WHISPER_CPP:
        whisper_cpp.convert(folder / name, precision, made)
    elif engine == ONNXRUNTIME:
        whisper_onnxruntime.convert(folder / name, precision, made)
    else:
        build_bundle(folder, name, engine, precision, made)


def measure(case: tuple[str, str, str], made: Path) -> dict[str, Any]:
    """Return the times, the tokens and the acceptance length of a generation."""
    from scripts.peers import whisper_cpp, whisper_onnxruntime

    name, engine, precision = case
    if engine == CTRANSLATE2:
        return run_theirs(name, precision, made)
    if engine == WHISPER_CPP:
        return whisper_cpp.run(made, PROMPT, END, TOKENS)
    if engine == ONNXRUNTIME:
        return whisper_onnxruntime.run(made, PROMPT, END, TOKENS)
    return run_ours(name, engine, made)


def source() -> list[int]:
    """Return the corrector's source."""
    return [100 + (37 * place * place + 11 * place) % 30000 for place in range(SOURCE)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=3, help="0 prepares only")
    parser.add_argument("--case", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--prepare", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    folder = options.folder.resolve() / "speech"
    if options.case is not None:
        name, engine, precision = CASES[options.case]
        made = folder / (f"{name}-ct2" if engine == CTRANSLATE2 else f"{name}-{engine}-{precision}")
        if options.prepare and not made.exists():
            prepare(folder, CASES[options.case], made)
        elif not options.prepare:
            print(json.dumps(measure(CASES[options.case], made)))
        return
    if not folder.is_dir():
        make_models(folder)
    for case in range(len(CASES)):
        start(options.folder, case, "--prepare")
    found: dict[int, list[dict[str, Any]]] = {case: [] for case in range(len(CASES))}
    for number in range(options.rounds):
        for case in list(found)[:: 1 if number % 2 == 0 else -1]:
            found[case].append(json.loads(start(options.folder, case).splitlines()[-1]))
    if options.rounds:
        show(found)


def start(folder: Path, case: int, *more: str) -> str:
    """Run a case in a process of its own. CTranslate2's environment reads this one's packages for its conversion, and
    whisper.cpp's models are written by this one."""
    engine = CASES[case][1]
    own = engine not in PEERS or (more and engine == WHISPER_CPP)
    python = Path(sys.executable) if own else folder / engine / "bin" / "python"
    paths = [ROOT, *([sysconfig.get_path("purelib")] if more and engine == CTRANSLATE2 else [])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    line = [str(python), __file__, str(folder), "--case", str(case), *more]
    return subprocess.run(line, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout


def show(found: dict[int, list[dict[str, Any]]]) -> None:
    """Print a line for each case, with ratios over CTranslate2's and over autoregression in the same precision."""
    speeds = {case: median(each["speed"] for each in runs) for case, runs in found.items()}
    tokens = {case: runs[0]["tokens"] for case, runs in found.items()}
    columns = ("model", "engine", "precision", "encoder, ms", "tokens/s", "over CTranslate2", "over autoregression")
    print(f"| {' | '.join((*columns, 'a round', 'same'))} |\n|{'---|' * 9}")
    for case, (name, drafter, precision) in enumerate(CASES):
        theirs, alone = (CASES.index((name, each, precision)) for each in ("ctranslate2", "none"))
        first, accepted = median(each["first"] for each in found[case]), found[case][0]["accepted"]
        print(
            f"| {name} | {drafter} | {precision} | {1e3 * first:.0f} | {speeds[case]:.1f} "
            f"| {speeds[case] / speeds[theirs]:.2f} | {speeds[case] / speeds[alone]:.2f} "
            f"| {'' if accepted is None else f'{accepted:.2f}'} | {tokens[case] == tokens[theirs]} |"
        )


if __name__ == "__main__":
    main()
