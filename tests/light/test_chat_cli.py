"""`speccompile chat`: what is typed, what is answered, and what stops an answer."""

import io
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from speccompile.cli import chat
from speccompile.errors import UsageError
from speccompile.serving.scheduler.events import Observer
from speccompile.serving.scheduler.scheduler import Scheduler
from tests.full_disk import largest_file
from tests.light.fake_bundle import write_toy_bundle
from tests.light.serve_example import chat_bundle

TOY_CHAT = """
from unittest.mock import patch
from speccompile.cli import main
from tests.light.fake_bundle import toy_manifest
from tests.light.toy_engine import ToyEngine

with patch("speccompile.runtime.devices.onnxruntime.OnnxRuntimeEngine", lambda *_: ToyEngine(toy_manifest())):
    main()
"""


@pytest.fixture
def talk(monkeypatch, capsys):
    """Type lines, and return what stdout and stderr said."""

    def talk(*lines, bundle=None, system=None, show_drafts=False, session=None, **options):
        monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        chat.converse(
            chat_bundle() if bundle is None else bundle, {"max_new_tokens": 4} | options, system=system,
            show_drafts=show_drafts, session=session,
        )  # fmt: skip
        return capsys.readouterr()

    return talk


def answer(messages, **options):
    """Return text of one generation from these messages."""
    bundle = chat_bundle()
    from speccompile.runtime.text.chat import apply_chat_template

    written = apply_chat_template(bundle.chat_template[0], messages, bundle.chat_template[1])
    return bundle.generate(bundle.text.encode(written, special_tokens=False), **{"max_new_tokens": 4} | options).text


def user(text):
    return {"role": "user", "content": text}


def test_a_conversation_is_what_its_messages_generate(talk):
    out, err = talk("def", "return self")
    first = answer([user("def")])
    second = answer([user("def"), {"role": "assistant", "content": first}, user("return self")])
    assert out == f"{first}\n{second}\n"
    assert "cut after --max-new-tokens" in err


@pytest.mark.parametrize("changes", [{}, {"batch_size": 2}, {"carried": True}, {"features": True, "pairs": True}])
def test_a_conversation_goes_on_from_a_session(talk, tmp_path, monkeypatch, changes):
    whole = talk("def", "return self", "and then", bundle=chat_bundle(**changes)).out
    cached = []
    monkeypatch.setattr(
        Observer, "admitted", lambda self, prompt, reused, waited: cached.append(reused)
    )  # how much of a prompt was read before
    path = tmp_path / "s"
    out = talk("def", "return self", bundle=chat_bundle(**changes), session=path).out
    later = talk("and then", bundle=chat_bundle(**changes), session=path)
    assert out + later.out == whole
    assert "going on after 4 messages" in later.err
    assert cached[-1] > 0 or "carried" in changes
    assert talk("/exit", bundle=chat_bundle(**changes), session=path).out == ""
    assert "after 6 messages" in talk("/exit", bundle=chat_bundle(**changes), session=path).err


@pytest.mark.parametrize(("source", "told"), [({"audio": {}}, "hears"), ({"languages": {}}, "reads sources")])
def test_a_target_with_an_encoder_is_refused_before_anything_is_typed(talk, source, told):
    bundle = SimpleNamespace(text="a tokenizer", manifest=SimpleNamespace(source=source))
    with pytest.raises(UsageError, match=f"this bundle's target {told}: there is no conversation with it"):
        talk(bundle=bundle)


def test_a_chat_refuses_a_session_of_a_prompt_and_a_missing_folder(talk, tmp_path):
    chat_bundle().generate("def", max_new_tokens=2, session=tmp_path / "s")
    with pytest.raises(UsageError, match="session of a single prompt, expected that of a chat"):
        talk("hello", session=tmp_path / "s")
    for note in ("no JSON", "[" * 9999, "{}", '["hello"]', '[{"role": "user"}]', '[{"role": "user", "content": 1}]'):
        bundle = chat_bundle()
        bundle.generate("def", max_new_tokens=2)
        bundle.save_session(tmp_path / "s", notes={"messages": note})
        with pytest.raises(UsageError, match="expected that of a chat"):
            talk("hello", session=tmp_path / "s")
    with pytest.raises(UsageError, match="there is no folder"):
        talk("hello", session=tmp_path / "a" / "s")


def test_a_prompt_does_not_replace_the_session_of_a_chat(talk, tmp_path):
    talk("hello", session=tmp_path / "s")
    kept, bundle = (tmp_path / "s").read_bytes(), chat_bundle()
    with pytest.raises(UsageError, match="received a session with the notes messages, as a chat writes them") as raised:
        bundle.generate("def", max_new_tokens=2, session=tmp_path / "s")
    assert raised.value.hint == "give another file, or go on with `speccompile chat`"
    assert (tmp_path / "s").read_bytes() == kept
    assert bundle.load_session(tmp_path / "s")


def test_what_a_block_and_a_backslash_go_on_with_is_one_message(talk):
    one = answer([user("def\nreturn")])
    assert talk("def\\", "return").out == f"{one}\n"
    assert talk('"""def', 'return"""').out == f"{one}\n"
    assert talk('"""def return"""').out == f"{answer([user('def return')])}\n"
    assert talk("", "  ").out == ""


def test_the_system_message_is_before_all(talk):
    told = answer([{"role": "system", "content": "self"}, user("def")])
    assert talk("def", system="self").out == f"{told}\n"
    out, err = talk("/system self", "def")
    assert (out, "from the next answer on" in err) == (f"{told}\n", True)
    assert talk("/system", "def", system="self").out == f"{answer([user('def')])}\n"


def test_regenerate_answers_the_last_message_again(talk):
    out, _ = talk("def", "/regenerate")
    assert out == 2 * f"{answer([user('def')])}\n"
    assert "received /regenerate before any message" in talk("/regenerate").err


def test_a_seed_draws_the_same_answer_again(talk):
    sampling = {"temperature": 1.0, "seed": 3}
    out, _ = talk("def", "/regenerate", bundle=chat_bundle(sampling=True), **sampling)
    assert len(set(out.splitlines())) == 1


def test_clear_forgets_and_save_writes(talk, tmp_path):
    first = answer([user("def")])
    out, err = talk("self", "/clear", "def", f"/save {tmp_path}/c.json", f"/save {tmp_path}/c.md", system="be")
    assert "forgotten" in err
    messages = [{"role": "system", "content": "be"}, user("def")]
    first = answer(messages)
    assert out.splitlines()[-1] == first
    assert json.loads((tmp_path / "c.json").read_text()) == [*messages, {"role": "assistant", "content": first}]
    assert (tmp_path / "c.md").read_text() == f"## system\n\nbe\n\n## user\n\ndef\n\n## assistant\n\n{first}\n"
    err = talk(f"/save {tmp_path}/none/c.json", "/save").err
    assert f"/save {tmp_path}/none/c.json: No such file or directory" in err
    assert "received /save without a file" in err


def test_save_leaves_the_old_file_on_a_full_disk_and_nothing_beside_it(talk, tmp_path):
    (tmp_path / "c.json").write_text("old")
    with largest_file(16):
        err = talk("def", f"/save {tmp_path}/c.json").err
    assert f"/save {tmp_path}/c.json: File too large" in err
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"c.json": "old"}
    talk("def", "/save /dev/null")
    assert Path("/dev/null").is_char_device()


def test_stats_tell_of_the_last_answer(talk):
    err = talk("/stats", "def", "/stats").err
    assert "there is no answer yet" in err
    assert "4 new tokens in" in err
    assert "tokens/s" in err


def test_exit_ends_and_unknown_commands_are_told_the_nearest(talk):
    assert talk("/exit", "def").out == ""
    err = talk("/regenrate", "/xyz", "/help").err
    assert "received the command '/regenrate'" in err
    assert "did you mean /regenerate?" in err
    assert "hint: see /help" in err
    assert all(name in err for name in chat.COMMANDS)


@pytest.mark.parametrize("message", ["/usr/bin is a folder", " /help"])
def test_a_path_and_what_begins_with_a_space_are_no_commands(talk, message):
    out, err = talk(message)
    assert out == f"{answer([user(message)])}\n"
    assert "error" not in err


def test_a_message_that_is_too_long_is_told_and_forgotten(talk):
    bundle = chat_bundle()
    long = "def " * (bundle.manifest.max_length + 1)
    out, err = talk(long, "def", bundle=bundle)
    assert "more than this bundle's capacity" in err
    assert out == f"{answer([user('def')])}\n"


def test_a_long_chat_leaves_its_oldest_messages_out(talk, caplog):
    bundle, lines = chat_bundle(), [f"line {number}" for number in range(12)]
    assert "more than this bundle's capacity" in talk(*lines).err
    found = talk(*lines, bundle=bundle, system="be kind", truncate="left").out.split("\n")[:-1]
    assert len(found) == len(lines), "every message is answered"
    notes = [record.getMessage() for record in caplog.records if "no longer read" in record.getMessage()]
    unread = [int(note.split()[3]) for note in notes]
    assert unread == sorted(set(unread))
    assert unread[0] % 2 == 0, "a message and its answer"
    said = [each for pair in zip(map(user, lines), found, strict=True) for each in pair]
    messages = [{"role": "assistant", "content": each} if isinstance(each, str) else each for each in said]
    system = {"role": "system", "content": "be kind"}
    assert found[-1] == answer([system, *messages[unread[-1] : -1]])
    long = "def " * (bundle.manifest.max_length + 1)
    out, err = talk("def", long, "def", truncate="left")
    assert "more than this bundle's capacity" in err, "nothing is cut inside of a message"
    assert out == talk("def", "def").out


def test_without_a_template_the_text_goes_on(talk):
    bundle = chat_bundle(chat=False)
    expected = chat_bundle(chat=False).generate("def", max_new_tokens=4).text
    assert talk("def", bundle=bundle).out == f"{expected}\n"


def test_without_a_tokenizer_there_is_nothing_to_say(talk):
    with pytest.raises(UsageError, match="has no tokenizer"):
        talk("def", bundle=chat_bundle(text=False, chat=False))


def test_an_interrupt_stops_the_answer_and_not_the_chat(talk, monkeypatch):
    written, rounds, interrupted, step = [], [], threading.Event(), Scheduler.step

    def held(scheduler):
        """Let the rounds after the first few wait for Ctrl-C."""
        rounds.append(scheduler)
        if len(rounds) > 3:
            assert interrupted.wait(10)
        return step(scheduler)

    def echo(text="", **settings):
        written.append(text)
        if isinstance(text, bytes) and text and not interrupted.is_set():
            os.kill(os.getpid(), signal.SIGINT)
            interrupted.set()

    monkeypatch.setattr(Scheduler, "step", held)
    monkeypatch.setattr("speccompile.cli.chat.click.echo", echo)
    before = signal.getsignal(signal.SIGINT)
    talk("def", "return", max_new_tokens=40)
    assert signal.getsignal(signal.SIGINT) is before
    assert written.count("(stopped)") == 1
    after = written[written.index("(stopped)") + 1 :]
    assert any(isinstance(text, bytes) and text for text in after)  # the second message was answered as well


def test_accepted_drafts_are_coloured(talk, monkeypatch):
    monkeypatch.setattr(chat, "_has_colours", lambda: True)
    plain = talk("def", max_new_tokens=12).out
    coloured = talk("def", max_new_tokens=12, show_drafts=True).out
    assert coloured.replace("\x1b[32m", "").replace("\x1b[0m", "") == plain
    assert "\x1b[32m" in coloured
    raw = talk("def", max_new_tokens=12, show_drafts=True, bundle=chat_bundle(chat=False))
    assert "\x1b[32m" in raw.out
    assert "error" not in raw.err


def test_without_colours_it_is_said(talk):
    assert "there are no colours here" in talk("def", show_drafts=True).err


def test_run_without_a_prompt_needs_a_terminal(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    with pytest.raises(UsageError, match="received no prompt, and stdin is no terminal"):
        chat.require_terminal()


def test_pictures_of_a_bundle_that_sees_none_and_of_a_session_are_refused(talk, tmp_path):
    err = talk("/image a.png", "/image").err
    assert "error: /image a.png: received a picture for a bundle that sees none, expected text" in err
    assert "error: received /image without a file" in err
    bundle = chat_bundle()
    bundle.vision = object()
    kept = talk("/image a.png", bundle=bundle, session=tmp_path / "a.session").err
    assert "received a picture in a chat with --session, expected text: sessions do not save pictures" in kept


def test_messages_arguments_and_paths_in_utf_8_are_read_where_the_locale_says_ascii(tmp_path):
    folder = write_toy_bundle(tmp_path / "größe")
    line = [sys.executable, "-c", TOY_CHAT, "-q", "chat", folder, "-n", "2", "--system", "Über 名"]
    names = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii:strict"}
    utf8, ascii_ = (
        subprocess.run(line, input="größe → 名\n".encode(), capture_output=True, env=os.environ | names)
        for names in ({"PYTHONUTF8": "1"}, names)
    )
    assert (ascii_.returncode, ascii_.stdout, ascii_.stderr) == (0, utf8.stdout, utf8.stderr)
    assert utf8.stdout


def test_lines_of_a_file_that_were_refused_are_an_exit_code(tmp_path):
    line = [sys.executable, "-c", TOY_CHAT, "-q", "chat", str(write_toy_bundle(tmp_path / "toy")), "-n", "2"]
    run = subprocess.run(line, input="/sav\ndef\n", capture_output=True, text=True)
    assert (run.returncode, run.stdout.count("\n")) == (1, 1), "the next message is answered"
    assert "hint: did you mean /save?" in run.stderr
