"""Scripts of users, checked by mypy --strict against speccompile as pip installs it: a package with py.typed."""

import ast
import inspect
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

import speccompile
from speccompile.runtime.servable import Servable

RIGHT = """
import asyncio
from pathlib import Path

from speccompile import AsyncTextStream, Bundle, Generation, GenerationOptions, TextStream, Timings, build, load, plan
from speccompile.plan.plan import Plan
from speccompile.serving.scheduler import Limits, Observer, Service


def make(recipe: Path) -> Path:
    decided: Plan = plan(recipe, overrides={"drafter.tokens": 6})
    return build({"name": "x", "target": {"model": "m"}}, "out", prove=False) if decided.notes else build(decided)


def use(folder: Path) -> list[str | None]:
    options = GenerationOptions(max_new_tokens=64, stop=["\\n\\n"])
    with load(folder, threads=2) as bundle:
        one: Generation = bundle.generate("def main(", options, temperature=0.8, seed=7)
        both: list[Generation] = bundle.generate_batch(["a", [1, 2]], temperature=[0.0, 1.0], top_k=None)
        said: Generation = bundle.chat([{"role": "user", "content": "Hello"}], max_new_tokens=8)
        with bundle.stream("def ", stop="\\n") as stream:
            pieces: list[str] = list(stream)
        answer: TextStream = bundle.stream_chat([{"role": "user", "content": "Hello"}])
        length: float | None = one.acceptance_length
        times: Timings = one.timings
        print(times.first_token, times.prefill + sum(times.rounds))
        print(length, one.tokens_per_second, one.draft_mask, pieces, answer.generation, bundle)
        return [each.text for each in (one, said, *both)]


async def twins(bundle: Bundle) -> str:
    one: Generation = await bundle.agenerate("a", GenerationOptions(stop="x"), max_new_tokens=4)
    both: list[Generation] = await bundle.agenerate_batch(["a", "b"], seed=[1, None])
    said: Generation = await bundle.achat([{"role": "user", "content": "Hello"}], chat_template_kwargs={"a": 1})
    answer: AsyncTextStream = bundle.astream_chat([{"role": "user", "content": "Hello"}])
    async with bundle.astream("a", temperature=0.5) as stream:
        text = "".join([piece async for piece in stream])
    await answer.aclose()
    return f"{one}{both}{said}{text}{stream.generation}"


async def serve(bundle: Bundle) -> str:
    service: Service = bundle.serve(Limits(requests=8), Observer())
    async with service:
        found: list[Generation] = await service.submit("a", max_new_tokens=4)
        async with service.submit([1, 2], GenerationOptions(logprobs=True)) as request:
            text = "".join([delta.text async for delta in request])
        return text + str(found[0].text)


asyncio.run(serve(Bundle.open("x", engine="onnxruntime-cpu")))
"""
HEAD = """
from speccompile import Bundle, GenerationOptions, build, load, plan
from speccompile.serving.scheduler import Service


def use(bundle: Bundle, service: Service) -> None:
"""
WRONG = {
    'bundle.generate("a", max_token=4)': 'Unexpected keyword argument "max_token" for "generate" of "Bundle"',
    'bundle.generate_batch(["a"], temperature="hot")': 'Argument "temperature" to "generate_batch" of "Bundle" has',
    'bundle.stream("a", stop=5)': 'Argument "stop" to "stream" of "Bundle" has incompatible type "int"',
    'bundle.chat("a")': 'Argument 1 to "chat" of "Bundle" has incompatible type "str"',
    'bundle.agenerate("a", max_token=4)': 'Unexpected keyword argument "max_token" for "agenerate" of "AsyncTwins"',
    'bundle.generate("a").timings.decode': '"Timings" has no attribute "decode"',
    "bundle.stream_chat([], max_tokens=4)": 'Unexpected keyword argument "max_tokens" for "stream_chat"',
    'bundle.generate("a").accepted_length': '"Generation" has no attribute "accepted_length"',
    "GenerationOptions(max_token=4)": 'Unexpected keyword argument "max_token" for "GenerationOptions"',
    'service.submit("a", max_token=4)': 'Unexpected keyword argument "max_token" for "submit" of "Service"',
    "bundle.serve(limit=8)": 'Unexpected keyword argument "limit" for "serve" of "Servable"',
    "bundle.serve(8)": 'Argument 1 to "serve" of "Servable" has incompatible type "int"; expected "Limits | None"',
    'bundle.serve().generate("a")': '"Service" has no attribute "generate"',
    'load("x", thread=2)': 'Unexpected keyword argument "thread"',
    'build("x", outputs="y")': 'Unexpected keyword argument "outputs" for "build"',
    'plan("x", override={})': 'Unexpected keyword argument "override" for "plan"',
}
"""Lines that are wrong -> mypy's error."""


@pytest.fixture(scope="module")
def checked(tmp_path_factory) -> subprocess.CompletedProcess:
    """Return the output of mypy for both scripts, with an interpreter that has speccompile and nothing else."""
    folder = tmp_path_factory.mktemp("user")
    venv.create(folder / "venv", symlinks=True)
    (site,) = (folder / "venv").glob("lib/python*/site-packages")
    (site / "speccompile").symlink_to(Path(speccompile.__file__).parent)
    (folder / "right.py").write_text(RIGHT)
    (folder / "wrong.py").write_text(HEAD + "".join(f"    {line}\n" for line in WRONG))
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--no-error-summary", "--cache-dir", "cache",
               "--python-executable", str(folder / "venv" / "bin" / "python"), "right.py", "wrong.py"]  # fmt: skip
    environment = {name: value for name, value in os.environ.items() if name != "MYPYPATH"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def test_a_right_script_has_no_error(checked):
    assert (checked.returncode, checked.stderr) == (1, "")
    assert "right.py" not in checked.stdout


def test_the_stub_of_serve_has_the_parameters_of_the_method():
    """mypy reads the stub alone."""
    stub = ast.parse(Path(inspect.getfile(Servable)).with_suffix(".pyi").read_text(encoding="utf-8"))
    (method,) = (node for node in ast.walk(stub) if isinstance(node, ast.FunctionDef))
    named = [parameter.arg for parameter in method.args.args]
    assert (method.name, named) == ("serve", list(inspect.signature(Servable.serve).parameters))
    assert {ast.literal_eval(value) for value in method.args.defaults} == {None}


@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_line_is_an_error(checked, line):
    number = (HEAD + "".join(f"    {each}\n" for each in WRONG)).splitlines().index(f"    {line}") + 1
    assert f"wrong.py:{number}: error: {WRONG[line]}" in checked.stdout
