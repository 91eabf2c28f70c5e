"""Answers by a server: token ids in both directions where it has them, else text; failures and their messages."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

from speccompile.errors import SpeccompileError, UsageError
from speccompile.train.answers import make_answers
from speccompile.train.answers.generator import seed_of
from speccompile.train.answers.server import RefusedError, Server, completions_url
from speccompile.train.data.documents import Prompt
from tests import zoo
from tests.train.answer_plans import training_plan
from tests.train.completions_server import refused, said, serving
from tests.train.test_answers import EOS, alone, prompts, rows

KEY = "sk-very-secret"


@pytest.fixture(scope="module")
def target(shared_folder):
    return zoo.save("llama", shared_folder / "endpoint-target", eos=EOS)


@pytest.fixture(autouse=True)
def _no_proxy_and_no_waits(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setattr("speccompile.train.answers.server.WAITS", (0.0, 0.0))
    monkeypatch.setitem(Server.__init__.__kwdefaults__, "waits", (0.0, 0.0))


def plan_of(target, served, **data):
    return training_plan(target, answers="endpoint", endpoint=served.url, endpoint_model="tiny", **data)


def generating(folder: Path):
    """Answer as vLLM: token ids in and out, the text without what ends it."""
    model = zoo.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    def reply(body, _):
        if body["prompt"][0] == zoo.BEGIN:
            return refused(400, "this one I do not like")
        ids = torch.tensor([body["prompt"]])
        tokens = model.generate(ids, do_sample=False, max_new_tokens=body["max_tokens"], eos_token_id=[EOS])
        new = tokens[0, ids.shape[1] :].tolist()
        return said("..", "stop" if new[-1] == EOS else "length", token_ids=new)

    return reply


def test_token_ids_there_and_back(target, tmp_path, monkeypatch):
    monkeypatch.setenv("MY_KEY", KEY)
    given = prompts((40, 3, 17, 1, 29, 17, 90, 16, 8, 95, 40) * 2)
    given[5] = Prompt("refused", [zoo.BEGIN, 5])
    with serving(generating(target)) as served:
        plan = plan_of(target, served, endpoint_key="MY_KEY")
        found = rows(make_answers(plan, given, tmp_path / "answers"))
    assert found[5] == {
        "document": "refused",
        "failed": "the endpoint refused it with status 400: this one I do not like",
    }
    for row, prompt in zip(found, given, strict=True):
        if prompt.document != "refused":
            assert row["answer_ids"] == alone(target, plan, prompt)
            assert row["finish"] == ("stop" if row["answer_ids"][-1] == EOS else "length")
    assert {len(body["prompt"]) for _, _, body in served.asked[:4]} == {95, 90}  # the longest first, four at once
    path, headers, body = next(asked for asked in served.asked if asked[2]["prompt"] == given[9].tokens.tolist())
    assert (path, headers["Authorization"]) == ("/v1/completions", f"Bearer {KEY}")
    del body["prompt"]
    assert body == {
        "model": "tiny", "max_tokens": 1, "temperature": 0.0, "top_p": 1.0, "n": 1, "seed": seed_of(0, 9),
        "return_token_ids": True, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0,
    }  # fmt: skip
    assert not any(KEY in path.read_text() for path in (tmp_path / "answers").iterdir())


SAYS = " the self = in the"


def plain(body, _):
    """Answer as OpenAI: refuse fields that are not its own."""
    return refused(400, "Unrecognized request argument") if "top_k" in body else said(SAYS, "stop")


def texts_alone(body, _):
    """Answer as servers that want text."""
    return said(SAYS, "stop") if isinstance(body["prompt"], str) else refused(422, "prompt must be a string")


@pytest.mark.parametrize(("reply", "kind", "tries"), [(plain, list, 1), (texts_alone, str, 2)])
def test_from_a_server_of_text_answers_are_tokenized_again(target, tmp_path, reply, kind, tries):
    tokenizer = zoo.byte_tokenizer(EOS)
    given = [Prompt(n, tokenizer(text)["input_ids"]) for n, text in enumerate(["def f(self):", "é = the", "x"] * 7)]
    given.append(Prompt("torn", tokenizer("é")["input_ids"][:1]))  # half a character
    with serving(reply) as served:
        found = rows(make_answers(plan_of(target, served, batch_size=8), given, tmp_path / "answers"))
    expected = [*tokenizer(SAYS)["input_ids"], EOS]
    assert all(row["answer_ids"] == expected and row["finish"] == "stop" for row in found[:-1])
    if kind is str:
        assert found[-1]["failed"] == "its tokens are no text that would be tokenized to them again"
        assert {body["prompt"] for _, _, body in served.asked if isinstance(body["prompt"], str)} == {
            "def f(self):", "é = the", "x",
        }  # fmt: skip
    else:
        assert found[-1]["answer_ids"] == expected
    first_forms = sum(not isinstance(body["prompt"], kind) or "top_k" in body for _, _, body in served.asked)
    assert first_forms == 8 * tries  # of the first group alone


def test_a_token_that_a_tokenizer_adds_by_itself_is_not_sent_twice(tmp_path):
    folder = zoo.save("llama", tmp_path / "target")
    tokenizer = zoo.byte_tokenizer()
    from tokenizers.processors import TemplateProcessing

    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", zoo.BEGIN)]
    )
    tokenizer.save_pretrained(folder)
    given = [Prompt(0, [zoo.BEGIN, *zoo.byte_tokenizer()("the self")["input_ids"]])]
    with serving(texts_alone) as served:
        make_answers(plan_of(folder, served), given, tmp_path / "answers")
    assert served.asked[-1][2]["prompt"] == "the self"


def test_a_busy_server_is_asked_again_as_late_as_it_wants():
    replies = [refused(429, "slowly", Retry_After="7"), refused(503, "loading"), said("at last")]
    waited = []
    with serving(lambda _, number: replies[number - 1]) as served:
        server = Server(served.url, None, waits=(1.0, 2.0, 4.0), sleep=waited.append)
        assert server.post({"prompt": [1]})["choices"][0]["text"] == "at last"
    assert waited == [7.0, 2.0]
    assert [body for _, _, body in served.asked] == [{"prompt": [1]}] * 3
    assert "Authorization" not in served.asked[0][1]


@pytest.mark.parametrize(
    ("reply", "kind", "words", "asked"),
    [
        (refused(500, "out of\n memory"), RefusedError, "refused it with status 500: out of memory", 3),
        (refused(400, "too long"), RefusedError, "refused it with status 400: too long", 1),
        (refused(401, "no key"), SpeccompileError, "received status 401: no key, expected an endpoint that compl", 1),
        (refused(404, "no model"), SpeccompileError, "received status 404: no model", 1),
        (refused(302, "there", Location="http://127.0.0.1:1/"), SpeccompileError, "received status 302", 1),
        ((200, {}, b"<html>"), SpeccompileError, "does not answer: received b'<html>', expected a JSON object", 3),
    ],
)
def test_what_a_server_refuses(reply, kind, words, asked):
    with serving(lambda *_: reply) as served:
        with pytest.raises(SpeccompileError, match=words) as found:
            Server(served.url, KEY, waits=(0.0, 0.0)).post({})
        assert type(found.value) is kind
        assert KEY not in str(found.value)
        assert len(served.asked) == asked


def test_a_server_that_goes_away_stops_the_run_which_then_goes_on(target, tmp_path):
    """Answer the first two groups; a run without a server is one error; the next asks for the others."""
    given = prompts([9] * 12)
    answer = generating(target)

    def dying(body, number):
        return answer(body, number) if number <= 8 else (200, {}, b"\xff")

    with serving(dying) as served:
        plan = plan_of(target, served)
        with pytest.raises(SpeccompileError, match=f"{served.url}/v1/completions does not answer") as found:
            make_answers(plan, given, tmp_path / "answers")
        assert found.value.hint == "mend that, and run the same command again: it goes on where it was"
        served_again = len(served.asked)
        served.reply = answer
        assert len(rows(tmp_path / "answers" / "part.jsonl")) == 8
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        with pytest.raises(SpeccompileError, match=r"does not answer: .*refused"):
            Server(f"http://127.0.0.1:{free.getsockname()[1]}", None, waits=(0.0,)).post({})
    assert served_again >= 9


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (said("x", token_ids=[5, zoo.VOCABULARY]), f"received token id {zoo.VOCABULARY}, expected ids below"),
        (said("x", token_ids=["5"]), "received token id 5, expected ids below"),
        (said("x", token_ids=5), "the endpoint answered with token_ids 5, expected a list"),
        (
            said("", token_ids=[]),
            "4 of 4 failed, expected at most 5%; the last, prompt 3: the endpoint answered without a token",
        ),
        ((200, {}, {"object": "error"}), "4 of 4 failed.*answered {'object': 'error'}, expected choices with a text"),
        (refused(400, "context"), "4 of 4 failed.*status 400: context"),
    ],
)
def test_answers_that_are_none(target, tmp_path, reply, words):
    with serving(lambda *_: reply) as served, pytest.raises(SpeccompileError, match=words):
        make_answers(plan_of(target, served), prompts([9] * 12), tmp_path / "answers")


def test_the_end_of_a_text_that_a_server_leaves_out_is_there(target, tmp_path):
    with serving(lambda *_: said("x", "stop", token_ids=[7, 8], stop_reason=None)) as served:
        found = rows(make_answers(plan_of(target, served), prompts([9]), tmp_path / "answers"))
    assert found[0]["answer_ids"] == [7, 8, EOS]


def test_a_target_without_a_tokenizer_needs_a_server_of_token_ids(tmp_path):
    folder = zoo.save("llama", tmp_path / "target", tokenizer=False)
    with (
        serving(lambda *_: said("x")) as served,
        pytest.raises(SpeccompileError, match="received no tokenizer, and the"),
    ):
        make_answers(plan_of(folder, served), prompts([9]), tmp_path / "answers")


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("http://localhost:8000", "http://localhost:8000/v1/completions"),
        ("http://localhost:8000/v1/", "http://localhost:8000/v1/completions"),
        ("https://a.example/serve/v1/completions", "https://a.example/serve/v1/completions"),
    ],
)
def test_addresses(address, url):
    assert completions_url(address) == url


@pytest.mark.parametrize("address", ["localhost:8000", "ftp://a.example", "http://", "http://[", "file:///etc/passwd"])
def test_what_is_no_address_is_refused(address):
    with pytest.raises(
        UsageError, match=r"train\.data\.answers\.endpoint: received '.*', expected an address, http or"
    ):
        completions_url(address)


def test_a_password_in_an_address_is_refused_and_not_shown():
    for address in (f"http://me:{KEY}@a.example/v1", f"http://a.example/v1?key={KEY}"):
        with pytest.raises(UsageError, match="expected a plain one") as found:
            completions_url(address)
        assert KEY not in str(found.value)


def test_what_is_missing_is_named(target, tmp_path, monkeypatch):
    monkeypatch.delenv("NOBODYS_KEY", raising=False)
    for data, words in (
        ({"endpoint": None}, r"train\.data\.answers\.endpoint: received nothing"),
        (
            {"endpoint": "http://a.example", "endpoint_key": "NOBODYS_KEY"},
            "received 'NOBODYS_KEY', expected an environ",
        ),
    ):
        with pytest.raises(UsageError, match=words):
            make_answers(training_plan(target, answers="endpoint", **data), prompts(), tmp_path / "answers")


WAITING = """
import sys
from pathlib import Path
from speccompile.train.answers import make_answers
from tests.train.answer_plans import training_plan
from tests.train.test_answers import prompts
plan = training_plan(Path(sys.argv[1]), answers="endpoint", endpoint=sys.argv[2], endpoint_model="tiny")
try:
    make_answers(plan, prompts(), Path(sys.argv[3]))
except KeyboardInterrupt:
    sys.exit(7)
"""


@pytest.mark.sweep("a process that imports torch")
def test_ctrl_c_does_not_wait_for_a_server_that_says_nothing(target, tmp_path):
    released = threading.Event()

    def silent(_, __):
        released.wait(60)
        return said("x", token_ids=[5])

    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with serving(silent) as served:
        arguments = [sys.executable, "-c", WAITING, str(target), served.url, str(tmp_path / "answers")]
        with subprocess.Popen(arguments, env=environment, cwd=Path(__file__).parents[2]) as process:
            while not served.asked:
                assert process.poll() is None
                time.sleep(0.01)
            process.send_signal(signal.SIGINT)
            try:
                assert process.wait(30) == 7
            finally:
                released.set()
                process.kill()
