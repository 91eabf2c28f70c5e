"""`speccompile-native` beside `speccompile`: the same command lines, on the same bundles, give the same."""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scripts import commands_header
from speccompile import __version__, native
from speccompile.compiler.build import build
from speccompile.recipe import load_recipe, make_plan
from speccompile.runtime import Bundle
from tests.native.two_commands import STEADY

pytestmark = pytest.mark.builds(2)

SAMPLED = """name: sampled
target: {model: target}
drafter: {kind: prompt_lookup, tokens: 4, ngram: 3}
cache: {max_length: 96, prefill_chunk: 16, batch_size: 3}
decoding: sampling
"""
WARM = [
    "--temperature", 1.5, "--top-k", 9, "--top-p", 0.9, "--min-p", 0.01, "--repetition-penalty", 1.25, "--seed", 7,
]  # fmt: skip
CACHES = ("ORT_DISABLE_TELEMETRY", "SPECCOMPILE_CACHE_DIR", "XDG_CACHE_HOME")
"""Variables that keep files out of the home folder."""


@pytest.fixture(scope="module")
def sampled(built, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("sampled")
    (folder / "target").symlink_to(built("lookup_3").folder / "target")
    (folder / "recipe.yaml").write_text(SAMPLED)
    build(make_plan(load_recipe(folder)), folder / "bundle", prove=False)
    return folder / "bundle"


@pytest.mark.parametrize("command", commands_header.commands(), ids=lambda command: command.name or "program")
def test_the_help_is_as_click_writes_it(both, command):
    shown = both.native(*filter(None, [command.name]), "--help").stdout.decode()
    said = command.get_help(commands_header.context_of(command)) + "\n"
    assert shown.startswith(said)
    assert (shown == said) == bool(command.name)  # the program has the list of its commands behind it


def test_the_program_says_what_it_is(both):
    version = both.native("--version")
    assert (version.returncode, version.stdout.decode()) == (0, f"speccompile-native, version {__version__}\n")
    shown = both.native()
    assert shown.returncode == 0
    assert shown.stdout == both.native("--help").stdout == both.native("-q").stdout
    commands = shown.stdout.decode().partition("Commands:\n")[2].splitlines()
    assert [line.split()[0] for line in commands] == ["generate", "bench", "inspect", "serve", "transcribe"]
    theirs = {" ".join(line.split()) for line in both.python("--help").stdout.decode().splitlines()}
    assert {" ".join(line.split()) for line in commands} < theirs


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["generat"], "did you mean 'speccompile-native generate'?"),
        (["version"], "did you mean 'speccompile-native --version'?"),
        (["plan"], "did you mean 'speccompile plan'?"),
        (["xyzzy"], "see speccompile-native --help"),
    ],
)
def test_another_command_is_refused(both, words, hint):
    run = both.native(*words)
    known = "generate, bench, inspect, serve, transcribe"
    said = f"error: received the command '{words[0]}', expected one of {known}\nhint: {hint}\n"
    assert (run.returncode, run.stdout, run.stderr.decode()) == (2, b"", said)


LINES = [
    ["--quite"],
    ["-x"],
    ["-qx", "generate"],
    ["--quiet=1", "generate"],
    ["--help=1"],
    ["-q=1"],
    ["generate"],
    ["generate", "a", "b"],
    ["generate", "a", "b", "c", "--prompt", "x"],
    ["generate", "a", "--promt", "x"],
    ["generate", "a", "--promt-fil=x"],
    ["generate", "a", "--xyzzy"],
    ["generate", "a", "--max-length=8"],
    ["generate", "a", "-n"],
    ["generate", "a", "-p", "x", "-n"],
    ["generate", "a", "-p", "x", "-nx"],
    ["generate", "a", "-p", "x", "-n=5"],
    ["generate", "a", "-p", "x", "-n0"],
    ["generate", "a", "-p", "x", "--max-tokens", "x"],
    ["generate", "a", "-p", "x", "--max-tokens"],
    ["generate", "a", "-px", "-t"],
    ["generate", "a", "-p", "x", "-t", "warm"],
    ["generate", "a", "-p", "-"],
    ["generate", "nowhere", "-xp", "a"],
    ["generate", "-", "-p", "x"],
    ["generate", "a", "--prompt"],
    ["generate", "a", "--json=1"],
    ["generate", "a", "---json"],
    ["generate", "--", "--prompt", "x"],
    ["generate", "nowhere"],
    ["generate", "nowhere", "--prompt", "a", "--token-ids", "1"],
    ["generate", "nowhere", "--chat", "--token-ids", "1"],
    ["generate", "nowhere", "--prompt", ""],
    ["generate", "nowhere", "--prompt-file", "."],
    ["generate", "nowhere", "--prompt-file", "nowhere"],
    ["generate", "nowhere", "--token-ids", ""],
    ["generate", "nowhere", "--token-ids", "1,2.5"],
    ["generate", "nowhere", "--token-ids", "1,_2"],
    ["generate", "nowhere", "--token-ids", "é" * 50],
    ["generate", "nowhere", "--token-ids", " 1_0,+2, -0"],
    ["generate", "nowhere", "--prompt", "a", "--logprobs"],
    ["generate", "nowhere", "--prompt", "a", "--temperature", "warm"],
    ["generate", "nowhere", "--prompt", "a", "--top-p", "1e"],
    ["generate", "nowhere", "--prompt", "a", "--top-k", "1.5"],
    ["generate", "nowhere", "--prompt", "a", "--seed", "0x1"],
    ["generate", "nowhere", "--prompt", "a", "--threads", "two"],
    ["generate", "nowhere", "--prompt", "a", "--threads", "0"],
    ["generate", "nowhere", "--prompt", "a", "--threads", "0", "--threads", "-00_7"],
    ["generate", "--threads", "0"],
    ["generate", "nowhere", "--prompt", "a", "--truncate", "right"],
    ["generate", "nowhere", "--max-new-tokens", "0", "--temperature", "warm"],
    ["generate", "nowhere", "--temperature", "warm", "--max-new-tokens", "0"],
    ["generate", "nowhere//a/./b", "--prompt", "a"],
    ["generate", "", "--prompt", "a"],
    ["inspect"],
    ["inspect", "nowhere"],
    ["inspect", "--jsn"],
    ["bench", "nowhere"],
    ["bench"],
    ["bench", "nowhere", "--prompts", "nowhere"],
    ["bench", "nowhere", "--prompts", "."],
    ["bench", "nowhere", "--prompts", "x", "--repeats", "0"],
    ["serve", "nowhere", "--port", "65536"],
    ["serve", "nowhere", "--port", "65535"],
    ["serve", "nowhere", "--port", "+99_999999999999999999999"],
    ["serve", "nowhere", "--waiting", "-1"],
    ["serve", "nowhere", "--waiting-seconds", "0"],
    ["serve", "nowhere", "--grace", "-1e-7"],
    ["serve", "nowhere", "--grace", "nan"],
    ["serve", "nowhere", "--grace", "-inf"],
    ["serve", "nowhere", "--header-bytes", "1023"],
    ["serve", "nowhere", "--scheduling-policy", "lifo"],
]


@pytest.mark.parametrize("words", LINES, ids=" ".join)
def test_a_wrong_command_line_is_refused_alike(both, words):
    said = both.same(*words)
    assert said.code in (1, 2)
    assert said.out == b""
    assert "error: " in said.err


def test_what_a_bundle_refuses(both, lookup, silent, sampled):
    """Refuse after the message that it was opened."""
    for folder, *words in (
        (lookup, "--prompt", "a\udcff"),
        (lookup, "--token-ids", "1,99999"),
        (lookup, "--token-ids=-1"),
        (lookup, "--prompt", "a", "--stop", ""),
        (lookup, "--prompt", "a", "--chat"),
        (lookup, "--prompt", "a", "--engine", "xyzzy"),
        (lookup, "--prompt", "a", "--top-k", 1, "--seed", 0),
        (lookup, "--prompt", "a", "--num-return-sequences", 2),
        (silent, "--prompt", "a"),
        (silent, "--token-ids", "1", "--stop", "a"),
        (sampled, "--prompt", "a", "--temperature", -1),
        (sampled, "--prompt", "a", "--temperature", "nan"),
        (sampled, "--prompt", "a", "--temperature", 1e-9),
        (sampled, "--prompt", "a", "--top-k", -1),
        (sampled, "--prompt", "a", "--top-p", 0),
        (sampled, "--prompt", "a", "--seed", -7),
        (sampled, "--prompt", "a", "--num-return-sequences", 0),
        (sampled, "--prompt", "a", "--num-return-sequences", -1),
        (sampled, "--prompt", "a", "--num-return-sequences", 4),
    ):
        said = both.same("generate", folder, *words)
        assert (said.code, said.out, said.err.splitlines()[0]) == (2, b"", f"opening {folder} ...")


def test_a_long_prompt_is_refused_or_truncated_alike(both, lookup):
    long = ["--token-ids", ",".join(str(3 + number % 50) for number in range(200))]
    refused = both.same("-q", "generate", lookup, *long)
    assert refused.code == 2
    assert "200 tokens, more than this bundle's capacity of 96" in refused.err
    for new in (20, 200):
        said = both.same("generate", lookup, *long, "-n", new, "--truncate", "left", *STEADY, "--json")
        kept = max(1, 96 - new)
        assert f"note: the first {200 - kept} of 200 prompt tokens are dropped" in said.err
        found = json.loads(said.out.replace(b" ..", b" 0"))
        assert (found["prompt_tokens"], found["truncated_tokens"]) == (kept, 200 - kept)
    fits = both.same("generate", lookup, "--token-ids", "3,4", "-n", 20, "--truncate", "left", *STEADY, "--json")
    assert b"truncated_tokens" not in fits.out


def test_a_prompt_does_not_replace_the_session_of_a_chat(both, lookup, tmp_path):
    session = tmp_path / "s"
    with Bundle.open(lookup, threads=1) as bundle:
        bundle.generate([3, 4], max_new_tokens=2)
        bundle.save_session(session, notes={"messages": "[]", "a": ""})
    kept = session.read_bytes()
    refused = both.same("-q", "generate", lookup, "--token-ids", "3,4", "--session", session)
    assert refused.code == 2
    assert "received a session with the notes a, messages, as a chat writes them, expected one of a" in refused.err
    assert session.read_bytes() == kept


def test_an_edited_bundle_is_refused(both, lookup, tmp_path):
    folder = tmp_path / "edited"
    shutil.copytree(lookup, folder)
    tokenizer = folder / "tokenizer" / "tokenizer.json"
    tokenizer.write_text(tokenizer.read_text() + " ")
    for command in (["generate", folder, "--prompt", "a"], ["inspect", folder], ["inspect", folder, "--json"]):
        assert both.same(*command).code == 1


def test_a_chat_template_writes_the_prompt(both, chatty):
    said = both.same("generate", chatty, "--prompt", "abc", "--chat", *STEADY)
    assert said.code == 0
    assert said.out != both.same("generate", chatty, "--prompt", "abc", *STEADY).out


def test_text_and_its_summary(both, lookup, model, silent, tmp_path):
    prompt = tmp_path / "prompt.txt"
    prompt.write_bytes(b"\xef\xbb\xbfgr\xc3\xb6\xc3\x9fe\r\n")
    for folder, *words in (
        (lookup, "--prompt", "abcabcabc"),
        (lookup, "--prompt-file", prompt, "--max-new-tokens", 7),
        (lookup, "--prompt-file", "-", "--autoregressive"),
        (lookup, "--token-ids", "1, 2,3", "--stop", "e", "--stop", "x"),
        (lookup, "--prompt", "a" * 95),
        (lookup, "--prompt", "abc", "--max-new-tokens", 1),
        (model, "--prompt", "def größe(self)", "--temperature", 0),
        (silent, "--token-ids", "1,2,3"),
    ):
        assert both.same("generate", folder, *words, *STEADY, stdin="größe".encode()).code == 0


def test_json_is_python_s(both, lookup, model, silent):
    for folder, *words in (
        (lookup, "--prompt", "abcabc"),
        (model, "--prompt", "größe", "--stop", "q"),
        (silent, "--token-ids", "4,5", "--autoregressive"),
    ):
        if native.library():  # otherwise the program has kernels that Python has not
            assert both.same("-q", "generate", folder, *words, *STEADY, "--json").code == 0


def test_log_probabilities(both, lookup):
    words = ("-q", "generate", lookup, "--prompt", "abcabc", "--logprobs", "--json", *STEADY)
    ours, theirs = (json.loads(run(*words).stdout) for run in (both.native, both.python))
    assert list(ours) == list(theirs)
    assert ours["logprobs"] == pytest.approx(theirs["logprobs"], abs=1e-4)


def test_sampling_and_several_sequences(both, sampled):
    for words in (WARM, [*WARM, "--num-return-sequences", 3], ["--temperature", 1, "--seed", 2**64 - 1]):
        assert both.same("generate", sampled, "--prompt", "abc", *words, *STEADY).code == 0
    several = both.native("-q", "generate", sampled, "--prompt", "abc", *WARM, "--num-return-sequences", 3, "--json")
    printed = [json.loads(line) for line in several.stdout.splitlines()]
    assert len({tuple(each["token_ids"]) for each in printed}) == 3
    drawn = both.native("generate", sampled, "--prompt", "abc", "--temperature", 1)
    assert b", seed " in drawn.stderr


@pytest.mark.parametrize("command", ["speccompile", "speccompile-native"])
def test_onnx_runtime_leaves_nothing_in_the_user_s_cache(both, lookup, tmp_path, command):
    """Look for `Microsoft/DeveloperTools`, which its telemetry writes, an identifier of the machine in it."""
    program = [both.program] if command == "speccompile-native" else [sys.executable, "-m", command]
    variables = {name: value for name, value in both.variables().items() if name not in CACHES}
    subprocess.run([*program, "-q", "generate", lookup, "-p", "a"], env=variables | {"HOME": str(tmp_path)}, check=True)
    assert [path.name for path in (tmp_path / ".cache").iterdir()] == ["speccompile"]


def test_onnx_runtime_is_named_where_it_is_not_found(both, lookup, tmp_path):
    found = both.native("-q", "generate", lookup, "--prompt", "a", "--onnxruntime", tmp_path / "none.so")
    assert found.returncode == 1
    assert b"error: found no ONNX Runtime" in found.stderr
    both.environment["SPECCOMPILE_ONNXRUNTIME"] = str(tmp_path / "none.so")
    assert both.native("-q", "generate", lookup, "--prompt", "a").returncode == 1
    named = both.native("-q", "generate", lookup, "--prompt", "a", "--onnxruntime", both.onnxruntime)
    assert (named.returncode, named.stderr) == (0, b"")
    shown = both.native("inspect", lookup, "--json")
    assert json.loads(shown.stdout)["here"] == {"onnxruntime-cpu": None}
    assert both.native("inspect", lookup, "--onnxruntime", tmp_path / "none.so").returncode == 1


def test_a_piece_is_written_as_it_comes(both, lookup):
    """Read separate writes from a pipe."""
    reading, writing = os.pipe2(os.O_DIRECT)
    process = both.start("-q", "generate", lookup, "--prompt", "abc", "--max-new-tokens", 40, stdout=writing)
    os.close(writing)
    pieces = []
    while piece := os.read(reading, 1 << 16):
        pieces.append(piece)
    os.close(reading)
    assert process.wait() == 0
    assert len(pieces) > 5
    assert b"".join(pieces) == both.native("-q", "generate", lookup, "--prompt", "abc", "--max-new-tokens", 40).stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_ends_a_generation_cleanly(both, lookup, number):
    """Interrupt a generation whose output fills a pipe that nobody reads."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    while select.select([], [writing], [], 0)[1]:
        os.write(writing, bytes(4096))
    os.set_blocking(writing, True)
    process = both.start("generate", lookup, "--prompt", "abc", stdout=writing)
    os.close(writing)
    assert process.stderr.readline() == f"opening {lookup} ...\n".encode()
    time.sleep(0.5)
    process.send_signal(number)
    assert process.communicate(timeout=20)[1] == b"\ninterrupted; nothing was kept\n"
    os.close(reading)
    assert process.returncode == 128 + number


def test_a_hangup_that_nohup_has_ignored_stays_ignored(both, lookup):
    def ignore() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    words = ("-q", "generate", lookup, "--prompt-file", "-", "--max-new-tokens", 2)
    process = both.start(*words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=ignore)
    time.sleep(0.1)
    process.send_signal(signal.SIGHUP)
    assert process.communicate(b"abc")[1] == b""
    assert process.returncode == 0


def test_a_reader_that_leaves_is_no_error(both, lookup):
    reading, writing = os.pipe()
    os.close(reading)
    process = both.start("-q", "generate", lookup, "--prompt", "abc", stdout=writing)
    os.close(writing)
    assert (process.communicate()[1], process.returncode) == (b"", 128 + signal.SIGPIPE)
