"""`speccompile generate` on toy bundles."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import pytest

from speccompile.bundle.sampling import SamplingParams
from speccompile.cli import main
from speccompile.runtime.text.tokenizer import Tokenizer
from tests.light.fake_bundle import JSON_KEYS, toy_manifest, write_toy_bundle
from tests.light.toy_engine import ToyEngine
from tests.light.toy_models import autoregressive, path_lengths

ROOT = Path(__file__).resolve().parents[2]
SAMPLING = {"sampling": True, "batch_size": 4}
WARM = [
    "--temperature", 1.5, "--top-k", 9, "--top-p", 0.9, "--min-p", 0.01, "--repetition-penalty", 1.25, "--seed", 7,
]  # fmt: skip
PROMPT_IDS = [256, *(ord(letter) - 33 for letter in "def")]
"""`def` as the toy tokenizer writes it."""

SLOW_BUNDLE = """
import sys, time
from unittest.mock import patch
from speccompile.cli import main
from tests.light.fake_bundle import toy_manifest
from tests.light.toy_engine import ToyEngine, drafts

rounds = []

def slow_drafts(*arguments):
    rounds.append(arguments)
    time.sleep(600 if len(rounds) > 3 else 0)  # until it is interrupted
    return drafts(*arguments)

with (
    patch("speccompile.runtime.devices.onnxruntime.OnnxRuntimeEngine", lambda *arguments: ToyEngine(toy_manifest())),
    patch("tests.light.toy_engine.drafts", slow_drafts),
    patch("speccompile.runtime.bundle.prepare_rounds"),  # no rounds but those of the generation
):
    main(sys.argv[1:])
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return write_toy_bundle(tmp_path_factory.mktemp("built") / "toy")


@pytest.fixture
def run(capsysbinary):
    """Run `speccompile`, the toy engine in ONNX Runtime's place; returns exit code, stdout and stderr."""

    def invoke(*arguments, **changes):
        with (
            patch(
                "speccompile.runtime.devices.onnxruntime.OnnxRuntimeEngine",
                lambda *_: ToyEngine(toy_manifest(**changes)),
            ),
            pytest.raises(SystemExit) as leaving,
        ):
            main(["-q", "generate", *map(str, arguments)])
        out, err = capsysbinary.readouterr()
        return leaving.value.code, out.decode(), err.decode()

    return invoke


def toy_text(folder: Path, count: int) -> str:
    text = Tokenizer(folder / "tokenizer" / "tokenizer.json")
    return text.decode([*PROMPT_IDS, *autoregressive(PROMPT_IDS, count)]).removeprefix("def")


def test_text_goes_to_stdout(folder, run):
    assert run(folder, "--prompt", "def", "--max-new-tokens", 40) == (0, toy_text(folder, 40) + "\n", "")


def test_the_summary_goes_to_stderr(folder, capsysbinary):
    with patch("speccompile.runtime.devices.onnxruntime.OnnxRuntimeEngine", lambda *_: ToyEngine(toy_manifest())):
        with pytest.raises(SystemExit):
            main(["generate", str(folder), "--prompt", "def", "--autoregressive", "--max-new-tokens", "3"])
        opening, summary = capsysbinary.readouterr().err.decode().splitlines()
        assert opening == f"opening {folder} ..."
        assert summary.startswith("3 new tokens in 2 autoregressive rounds, 1.00 tokens each, ")
        assert summary.endswith(" tokens/s, finish reason length")
        with pytest.raises(SystemExit):
            main(["generate", str(folder), "--prompt", "def", "--max-new-tokens", "1"])
        assert "1 new token in 0 speculative rounds, " in capsysbinary.readouterr().err.decode()
        with pytest.raises(SystemExit):
            main(["generate", str(folder), "--prompt", "def", "--max-new-tokens", "40"])
        summary = capsysbinary.readouterr().err.decode()
        assert re.search(r" tokens/s, [\d.]+x autoregressive \(estimated\), finish reason length$", summary.strip())


def test_tokens_are_printed_before_a_session_that_cannot_be_written(folder, run, tmp_path):
    with patch("speccompile.runtime.session_file.write_atomically", side_effect=OSError(28, "No space left on device")):
        code, out, err = run(folder, "-p", "def", "-n", 20, "--session", tmp_path / "s", "--json")
    assert (code, json.loads(out)["token_ids"]) == (2, autoregressive(PROMPT_IDS, 20))
    assert "the session cannot be written: No space left on device" in err


def test_an_empty_path_is_no_session(folder, run):
    code, out, err = run(folder, "--prompt", "def", "--session", "")
    assert (code, out) == (2, "")
    assert "session: received '', expected the path of a file" in err


def test_json_is_one_object(folder, run):
    code, out, err = run(folder, "--prompt", "def", "--max-new-tokens", 20, "--json", "--engine", "other")
    printed = json.loads(out)
    assert (code, err, out.count("\n")) == (0, "", 1)
    assert list(printed) == JSON_KEYS
    assert (printed["text"], printed["token_ids"]) == (toy_text(folder, 20), autoregressive(PROMPT_IDS, 20))
    assert printed["mean_accepted"] == 19 / printed["rounds"] > 1
    assert (printed["mode"], printed["engine"], printed["finish_reason"]) == ("speculative", "other", "length")


def test_a_prompt_file_is_taken_as_it_is(folder, run, tmp_path, monkeypatch):
    file = tmp_path / "prompt.txt"
    file.write_bytes(b"d\xc3\xa9\r\n\n")
    monkeypatch.setattr("sys.stdin", file.open())
    from_file, from_stdin, from_argument = (
        json.loads(run(folder, *source, "--json")[1])["token_ids"]
        for source in (["--prompt-file", file], ["--prompt-file", "-"], ["--prompt", "dé\r\n\n"])
    )
    assert from_file == from_stdin == from_argument


def test_token_ids_are_a_prompt(folder, run):
    out = run(folder, "--token-ids", ",".join(map(str, PROMPT_IDS)), "--max-new-tokens", 10)[1]
    assert out == toy_text(folder, 10) + "\n"


def test_a_bundle_without_tokenizer_prints_token_ids(tmp_path, run):
    folder = write_toy_bundle(tmp_path / "toy", tokenizer=False)
    expected = autoregressive([1, 2, 3], 5)
    assert run(folder, "--token-ids", "1,2,3", "--max-new-tokens", 5)[:2] == (0, ",".join(map(str, expected)) + "\n")
    printed = json.loads(run(folder, "--token-ids", "1, 2, 3", "--max-new-tokens", 5, "--json")[1])
    assert (printed["text"], printed["token_ids"]) == (None, expected)


def test_stop_and_chat_reach_the_bundle(folder, run):
    stops = toy_text(folder, 30)[8:12], toy_text(folder, 30)[12:16]
    code, out, _ = run(folder, "--prompt", "def", "--stop", stops[1], "--stop", stops[0])
    assert (code, out) == (0, toy_text(folder, 30)[:8] + "\n")
    chatted = json.loads(run(folder, "--prompt", "def", "--chat", "--json")[1])
    assert chatted["token_ids"] == autoregressive([*PROMPT_IDS, 0], 128)  # the toy template adds `!`, which is token 0


def test_every_round_has_all_drafts_when_asked_for(folder, run):
    code, out, _ = run(folder, "--prompt", "def", "--fixed-draft-length", "--max-new-tokens", 40, "--json")
    assert (code, json.loads(out)["rounds"]) == (0, len(path_lengths(PROMPT_IDS, 40, 4)))


def test_temperature_0_is_greedy(folder, run):
    assert run(folder, "--prompt", "def", "--temperature", 0, "--repetition-penalty", 1)[0] == 0


@pytest.fixture(scope="module")
def sampling(tmp_path_factory) -> Path:
    """Return a folder whose bundle samples. Run with `**SAMPLING`, it has four rows."""
    return write_toy_bundle(tmp_path_factory.mktemp("built") / "toy", **SAMPLING)


def drawn(count: int, sequence: int = 0) -> list[int]:
    """Return what comes of `WARM`."""
    return autoregressive(PROMPT_IDS, count, SamplingParams(1.5, 9, 0.9, 0.01, 1.25, 7, sequence))


def test_options_of_sampling_reach_the_bundle(sampling, run):
    code, out, err = run(sampling, "--prompt", "def", *WARM, "--max-new-tokens", 20, "--json", **SAMPLING)
    printed = json.loads(out)
    assert (code, err, list(printed)) == (0, "", JSON_KEYS)
    assert (printed["token_ids"], printed["seed"], printed["exact"]) == (drawn(20), 7, True)
    text = run(sampling, "--prompt", "def", *WARM, "--max-new-tokens", 20, **SAMPLING)[1]
    assert text == printed["text"] + "\n"


def test_a_seed_that_was_not_given_is_told(sampling, run, capsysbinary):
    arguments = ["--prompt", "def", "--temperature", 1, "--json"]
    first = json.loads(run(sampling, *arguments, **SAMPLING)[1])
    again = json.loads(run(sampling, *arguments, "--seed", first["seed"], **SAMPLING)[1])
    assert first["token_ids"] == again["token_ids"]
    with (
        patch(
            "speccompile.runtime.devices.onnxruntime.OnnxRuntimeEngine", lambda *_: ToyEngine(toy_manifest(**SAMPLING))
        ),
        pytest.raises(SystemExit),
    ):
        main(["generate", str(sampling), "--prompt", "def", "--temperature", "1", "--seed", "5"])
    assert capsysbinary.readouterr().err.decode().endswith("finish reason length, seed 5\n")


def test_several_sequences_are_told_apart(sampling, run):
    arguments = ["--prompt", "def", *WARM, "--max-new-tokens", 9, "--num-return-sequences", 3]
    out = run(sampling, *arguments, "--json", **SAMPLING)[1]
    printed = [json.loads(line) for line in out.splitlines()]
    assert [each["token_ids"] for each in printed] == [drawn(9, number) for number in range(3)]
    shown = "".join(f"--- sequence {number} of 3 ---\n{each['text']}\n" for number, each in enumerate(printed, 1))
    assert run(sampling, *arguments, **SAMPLING) == (0, shown, "")
    code, _, err = run(sampling, "--prompt", "def", "--num-return-sequences", 5, **SAMPLING)
    assert (code, err.splitlines()[0]) == (2, "error: 1 prompts with 5 sequences each at once: expected 1 to 4")


def test_sequences_of_a_bundle_without_tokenizer_are_token_ids(tmp_path, run):
    folder = write_toy_bundle(tmp_path / "toy", tokenizer=False, **SAMPLING)
    ids = ",".join(map(str, PROMPT_IDS))
    out = run(folder, "--token-ids", ids, *WARM, "--max-new-tokens", 5, "--num-return-sequences", 2, **SAMPLING)[1]
    assert out.splitlines()[1::2] == [",".join(map(str, drawn(5, number))) for number in range(2)]


def test_log_probabilities_are_printed_when_asked_for(folder, run):
    printed = json.loads(run(folder, "--prompt", "def", "--logprobs", "--json", "--max-new-tokens", 7)[1])
    assert list(printed) == [*JSON_KEYS, "logprobs"]
    assert len(printed["logprobs"]) == 7
    assert max(printed["logprobs"]) < 0


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--temperature", "0.8", "--seed", "0"], "received temperature 0.8, seed 0, but"),
        (["--top-k", "1"], "received top_k 1, but"),
        (["--top-p", "1"], "received top_p 1.0, but"),
        (["--min-p", "0.1"], "received min_p 0.1, but"),
        (["--repetition-penalty", "1.1", "--seed", "3"], "received repetition_penalty 1.1, seed 3, but"),
    ],
)
def test_sampling_is_refused(arguments, error, folder, run):
    assert run(folder, "--prompt", "def", *arguments) == (
        2,
        "",
        f"error: {error} the bundle was compiled for greedy decoding: sampling is not available\n"
        "hint: leave these options out, or build the bundle with decoding: sampling\n"
        "help: speccompile explain SC003\n",
    )


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "received no prompt, expected one of --prompt, --prompt-file, --token-ids\nhint: give exactly one"),
        (["--prompt", "a", "--token-ids", "1"], "received --prompt and --token-ids, expected one of"),
        (["--chat", "--token-ids", "1"], "received --chat with --token-ids, expected a text\nhint: leave one of them"),
        (["--prompt", ""], "--prompt: received an empty prompt, expected text\nhint: give at least one character"),
        (["--prompt", "a\udcff"], "the prompt is not UTF-8 text: character 1 is '\\udcff'\nhint: save the prompt"),
        (["--prompt", "a" * 160], "the prompt has 161 tokens, more than this bundle's capacity of 160\nhint: shorten"),
        (["--token-ids", ""], "--token-ids: received '', expected whole numbers with commas between them\nhint: write"),
        (["--token-ids", "1,2.5"], "--token-ids: received '2.5', expected whole numbers"),
        (["--token-ids", "1,258"], "token id 258 is out of range: expected 0 to 257"),
        (["--token-ids=-1"], "token id -1 is out of range: expected 0 to 257"),
        (["--prompt", "a", "--temperature", "-1"], "temperature: received -1.0, expected a number from 0 on\nhint: 0"),
        (["--prompt", "a", "--temperature", "nan"], "temperature: received nan, expected a number from 0 on"),
        (["--prompt", "a", "--temperature", "warm"], "Invalid value for '--temperature': 'warm' is not a valid float."),
        (["--prompt", "a", "--logprobs"], "received --logprobs without --json, expected both\nhint: add --json"),
        (["--prompt", "a", "--num-return-sequences", "0"], "num_return_sequences: received 0, expected a whole number"),
        (["--prompt", "a", "--max-new-tokens", "0"], "Invalid value for '--max-new-tokens': 0 is not in the range"),
        (["--prompt", "a", "-n", "1e3"], "Invalid value for '--max-new-tokens': '1e3' is not a valid integer.\nhint"),
        (["--prompt", "a", "--threads", "0"], "Invalid value for '--threads': 0 is not in the range x>=1."),
        (["--prompt", "a", "--stop", ""], "empty stop string in ['']\nhint: leave it out"),
        (["--prompt", "a", "--engine", "xyzzy"], "the bundle has no engine 'xyzzy'\nhint: it has: onnxruntime-cpu"),
    ],
)  # fmt: skip
def test_a_wrong_command_line_exits_with_2(arguments, told, folder, run):
    code, out, err = run(folder, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {told}")


def test_prompt_files_that_are_refused(folder, run, tmp_path):
    empty, foreign = tmp_path / "empty", tmp_path / "foreign"
    empty.write_bytes(b"")
    foreign.write_bytes("größe".encode("latin-1"))
    for file, told in (
        (empty, "received an empty prompt, expected text\nhint: give at least one character\n"),
        (foreign, "byte 2 is 0xf6, expected UTF-8 text\nhint: save the prompt as UTF-8\n"),
        (tmp_path, "Is a directory\nhint: give a file that can be read, or - for stdin\n"),
        (tmp_path / "none", "No such file or directory\nhint: give a file that can be read, or - for stdin\n"),
    ):
        assert run(folder, "--prompt-file", file) == (
            2,
            "",
            f"error: --prompt-file {file}: {told}help: speccompile explain SC020\n",
        )


def test_what_needs_a_tokenizer_is_refused(tmp_path, run):
    folder = write_toy_bundle(tmp_path / "toy", tokenizer=False)
    code, _, err = run(folder, "--prompt", "a")
    assert (code, err.splitlines()[1]) == (2, "hint: give token ids: --token-ids 1,2,3 ([1, 2, 3])")
    assert run(folder, "--token-ids", "1", "--stop", "a")[0] == 2


def test_a_bundle_that_was_edited_exits_with_1(tmp_path, run):
    edited = write_toy_bundle(tmp_path / "toy")
    (edited / "graphs" / "draft.onnx").write_bytes(b"Graph")
    code, out, err = run(edited, "--prompt", "a")
    assert (code, out) == (1, "")
    assert "draft.onnx: the file was edited" in err
    assert run(edited, "--prompt", "a", "--no-verify")[0] == 0


def test_text_is_written_at_once_as_utf8_and_an_interrupt_ends_it_cleanly(folder):
    command = [sys.executable, "-c", SLOW_BUNDLE, "generate", str(folder), "--prompt", "def"]
    environment = os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
    with process:
        shown = process.stdout.read1()  # long before the end
        process.send_signal(signal.SIGINT)
        rest, told = process.communicate()
    assert shown
    whole = toy_text(folder, 128).encode()
    assert whole.startswith(shown + rest)
    assert len(shown + rest) < len(whole)
    assert process.returncode == 130
    assert told.decode().splitlines()[1:] == ["", "interrupted; nothing was kept"]


def test_a_state_needs_a_drafter_that_learns(folder, run, tmp_path):
    code, _, err = run(folder, "--prompt", "def", "--state", tmp_path / "file")
    assert code == 2
    assert "this bundle keeps nothing from one generation to the next: its drafter is none" in err
    assert "hint: leave the file out" in err
    assert not (tmp_path / "file").exists()


def test_text_whose_session_cannot_be_saved_ends_its_line_before_the_error(folder, run, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("speccompile.runtime.session_file.write_atomically", full)
    asked = (folder, "--prompt", "def", "--max-new-tokens", 4, "--session", tmp_path / "s")
    code, out, err = run(*asked)
    assert (code, out) == (2, toy_text(folder, 4) + "\n")
    assert err.startswith(f"error: {tmp_path / 's'}: the session cannot be written: No space left on device\n")
