"""Transcripts of both runtimes: equal command lines give equal output on the same bundle."""

import json
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import openai
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from speccompile.bundle.hashes import HASHES, hash_folder, write_hashes
from speccompile.bundle.manifest import MANIFEST, canonical_json
from speccompile.serving.http.audio import TRANSCRIPTIONS_URL, TRANSLATIONS_URL
from speccompile.serving.http.model import ServedModel
from tests.compile.whispers import SOUND, noise
from tests.light.serve_example import Running, serving
from tests.light.test_audio import riff
from tests.light.test_cli_serve import ready
from tests.light.test_serve_audio import DAMAGED, MEDIA, form
from tests.light.test_serve_audio import WRONG as WRONG_FORMS
from tests.native.served import started
from tests.native.two_commands import STEADY, TwoCommands

LONG = 15_000
"""Samples of more than two windows."""
BY_THE_CLOCK = ("seconds", "tokens_per_second")
TIMED = [
    ("--language", "de"), (), ("--timestamps",), ("--language", "en", "--format", "srt"), ("--format", "vtt"),
    ("--language", "de", "--task", "translate", "--timestamps", "--condition-on-previous-text"),
    ("--temperature", "0,0.7", "--logprob-threshold", "-0.01", "--seed", 5, "--format", "vtt"),
    ("--logprob-threshold", "none", "--no-speech-threshold", "-1"), ("--autoregressive", "--timestamps"),
]  # fmt: skip
"""Options of a transcript, for a target that writes times."""
WRONG = [
    ("--task", "sing"), ("--language", "fr"), ("--language", "gr"), ("--initial-prompt", "names"),
    ("--temperature", "warm"), ("--temperature", "-1"), ("--no-speech-threshold", "1,2"), ("-n", 0),
    ("--logprob-threshold", "nan"), ("--format", "xml"), ("--json", "--format", "srt"), ("--loud",), ("another.wav",),
]  # fmt: skip


def write_noise(path: Path, size: int) -> Path:
    """Write a WAV file of noise, and return its path."""
    path.write_bytes(riff(1, 1, 16, (noise(size, size) * 2**14).astype("<i2").tobytes()))
    return path


def check_timed(both: TwoCommands, bundle: Path, folder: Path) -> None:
    """Check transcripts with times, of a sound that is shorter than a window and of one that is longer."""
    seen = set()
    for size, asked_of in ((SOUND // 2, TIMED[:3]), (LONG, TIMED)):
        sound = write_noise(folder / f"{size}.wav", size)
        for asked in asked_of:
            done = both.same("transcribe", bundle, sound, "-n", 24, *asked, *STEADY)
            assert done.code == 0
            seen.add(done.out)
    assert len(seen) >= len(TIMED) - 2  # the detected language is one of those that are given
    for asked in ((), ("--timestamps", "--language", "de"), ("--temperature", "0,0.7", "--seed", 3)):
        report = same_report(both, bundle, sound, "-n", 24, *asked, *STEADY)
        assert len(report["segments"]) > 1


def check_refusals(both: TwoCommands, bundle: Path, folder: Path) -> None:
    """Check what both refuse, in the same words."""
    sound = write_noise(folder / "short.wav", 1000)
    for asked in WRONG:
        assert both.same("transcribe", bundle, sound, *asked).code == 2
    assert both.same("transcribe", bundle).code == 2
    (folder / "empty.wav").write_bytes(b"")
    for end in (30, -10):
        (folder / "cut.wav").write_bytes(sound.read_bytes()[:end])
        assert both.same("transcribe", bundle, folder / "cut.wav").code == 2
    for name in ("empty.wav", "none.wav"):
        refused = both.native("transcribe", bundle, folder / name)
        assert (refused.returncode, refused.stdout, b"hint: " in refused.stderr) == (2, b"", True)


def same_report(both: TwoCommands, *words: object) -> Any:
    """Return the JSON object of a transcript, which must be equal but for the rounding of logarithms."""
    ours, theirs = (json.loads(run("transcribe", *words, "--json").stdout) for run in (both.native, both.python))
    assert list(ours) == list(theirs)
    for ours_part, theirs_part in zip(ours["segments"], theirs["segments"], strict=True):
        for name in ("avg_logprob", "no_speech_prob"):
            expected = theirs_part.pop(name)
            assert ours_part.pop(name) == (expected and pytest.approx(expected, rel=1e-4, abs=1e-6))
    for name in BY_THE_CLOCK:
        ours.pop(name), theirs.pop(name)
    assert ours == theirs
    return ours


@contextmanager
def heard_by(kind: str, bundle: Path, build: Path, library: Path) -> Iterator[Running]:
    """Yield a server of a kind, python or native, over a bundle with the name toy."""
    if kind == "python":
        model = ServedModel("toy")
        model.open(bundle)
        with serving(model, None) as running:
            yield running
    else:
        with started(kind, build, library, bundle, "--served-model-name", "toy") as (_, address):
            yield ready(address)


def check_client(address: str, sound: bytes, text: str) -> None:
    """Check what openai's client gets for a sound of a target of one window, which is greedy and writes no times."""
    client = openai.OpenAI(base_url=f"{address}/v1", api_key="unused", max_retries=0)
    given: dict[str, Any] = {"file": ("a.wav", sound), "model": "toy"}
    assert client.audio.transcriptions.create(**given).text == text
    assert client.audio.translations.create(**given).text == text
    assert client.audio.transcriptions.create(**given, response_format="text") == text + "\n"
    events = list(client.audio.transcriptions.create(**given, stream=True))
    assert (events[-1].type, events[-1].text) == ("transcript.text.done", text)
    for name, value in (("language", "fr"), ("response_format", "srt"), ("temperature", 0.5)):
        with pytest.raises(openai.BadRequestError) as refused:
            client.audio.transcriptions.create(**given, **{name: value})
        assert refused.value.param == name
    with pytest.raises(openai.BadRequestError):  # before the stream begins
        client.audio.transcriptions.create(**given, stream=True, temperature=0.5)
    assert client.audio.transcriptions.create(**given, temperature=1e-9).text == text
    with pytest.raises(openai.BadRequestError, match="a text, but this model hears"):
        client.completions.create(model="toy", prompt=text)
    with pytest.raises(openai.NotFoundError):
        client.audio.transcriptions.create(**given | {"model": "other"})


def check_servers(servers: Sequence[Running], sound: bytes) -> None:
    """Check that servers answer alike: all forms of a long sound of a target that writes times, and wrong bodies."""
    # almost greedy: at 0 an improbable text is drawn again, with another seed in each server
    whole = ("file", sound), ("model", "toy"), ("language", "de"), ("temperature", "0.0001")
    shown = set()
    for more in ((), ("text",), ("verbose_json",), ("srt",), ("vtt",), ("json", "true")):
        parts = [*whole, *zip(("response_format", "stream"), more, strict=False)]
        ours, theirs = (
            running.ask("POST", TRANSCRIPTIONS_URL, form(*parts), Content_Type=MEDIA) for running in servers
        )
        assert (ours.status, ours.headers["content-type"]) == (theirs.status, theirs.headers["content-type"])
        assert (200, without_logarithms(ours.data)) == (ours.status, without_logarithms(theirs.data))
        shown.add(ours.data)
    assert len(shown) == 6
    named = [
        (("file", data),)
        for data in (b"RIFF", sound[:30], sound[:-9], sound[:20] + b"\6" + sound[21:], b"fLaC" + bytes(9))
    ]
    named.append((("language", "f" * 9999),))
    forms = [parts for parts, _ in WRONG_FORMS] + [dict([("file", sound), *more]).items() for more in named]
    bodies = [(form(*parts), MEDIA) for parts in forms] + [(body, media) for body, media, _ in DAMAGED]
    for url in (TRANSCRIPTIONS_URL, TRANSLATIONS_URL):
        for number, (body, media) in enumerate([*bodies, (b"{}", "application/json")]):
            ours, theirs = (running.ask("POST", url, body, Content_Type=media) for running in servers)
            assert ours.status == theirs.status in (400, 415), (number, ours, theirs)
            ours_said, theirs_said = ours.error, theirs.error
            if b"Python alone" in ours.data:  # other forms than WAV
                ours_said, theirs_said = ours_said | {"message": ""}, theirs_said | {"message": ""}
            assert ours_said == theirs_said
            if (at := number - len(WRONG_FORMS)) in range(len(named)):
                ((field, _),) = named[at]
                assert (theirs.error["param"], theirs.error["message"][:99].partition(": ")[0]) == (field, field)


def check_refusal_without_tokenizer(servers: Sequence[Running], sound: bytes) -> None:
    """Check that a transcript that would have no text is refused in every form, at once where it would be streamed."""
    said = "this model has no tokenizer, so no text of what is spoken"
    for more in ((), ("text",), ("verbose_json",), ("json", "true")):
        parts = [("file", sound), *zip(("response_format", "stream"), more, strict=False)]
        for url in (TRANSCRIPTIONS_URL, TRANSLATIONS_URL):
            ours, theirs = (running.ask("POST", url, form(*parts), Content_Type=MEDIA) for running in servers)
            assert (ours.status, ours.error) == (theirs.status, theirs.error)
            assert (ours.status, said in ours.error["message"]) == (400, True)


def add_tokenizer(bundle: Path, to: Path) -> Path:
    """Return a copy of a bundle that has a tokenizer of words."""
    shutil.copytree(bundle, to)
    manifest = json.loads((to / MANIFEST).read_text())
    words = {f"w{number}": number for number in range(manifest["vocabulary_size"])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    (to / "tokenizer").mkdir()
    tokenizer.save(str(to / "tokenizer" / "tokenizer.json"))
    (to / MANIFEST).write_bytes(canonical_json(manifest | {"tokenizer": True}))
    (to / HASHES).unlink()
    write_hashes(to, hash_folder(to))
    return to


def check_both_servers(bundle: Path, folder: Path, sound: bytes, build: Path, library: Path) -> None:
    """Check that servers of both kinds answer alike over a bundle without a tokenizer, and over its copy with one."""
    with ExitStack() as held:
        for each, check in (
            (add_tokenizer(bundle, folder / "bundle"), check_servers),
            (bundle, check_refusal_without_tokenizer),
        ):
            kinds = [heard_by(kind, each, build, library) for kind in ("native", "python")]
            check([held.enter_context(kind) for kind in kinds], sound)


def without_logarithms(data: bytes) -> bytes:
    """Return an answer without numbers that round otherwise in the other runtime."""
    return re.sub(rb'"(avg_logprob|no_speech_prob)":[-.e0-9]+', rb"\1", data)
