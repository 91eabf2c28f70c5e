"""The command line's edge: exit codes, hints, progress, and what is imported when."""

import errno
import logging
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest

from speccompile import __version__
from speccompile.cli import exit_codes, main
from speccompile.cli.progress_output import NONE, choose
from speccompile.errors import DEFECT_EXIT_CODE, BundleError, ProofError
from speccompile.progress import LOGGER, log_step

MODULES_AFTER = """
import sys
from speccompile.cli import main
try:
    main(sys.argv[1:])
except SystemExit as leaving:
    assert leaving.code == 0, leaving.code
print("MODULES", *sys.modules)
"""


def speccompile(*arguments, **options):
    command = [sys.executable, "-c", "from speccompile.cli import main; main()", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def modules_after(*arguments):
    run = subprocess.run(
        [sys.executable, "-c", MODULES_AFTER, *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return set(run.stdout.rpartition("MODULES")[2].split())


def run_with(function, *arguments):
    """Return the exit code of a command line whose only command is this function."""
    group = click.Group(commands=[click.Command("act", callback=function)])
    return exit_codes.run(group, arguments or ["act"])


def raises(error):
    def act():
        raise error

    return act


def test_help_lists_the_commands_in_order_and_imports_nothing_heavy(capsys):
    with pytest.raises(SystemExit) as leaving:
        main(["--help"])
    assert leaving.value.code == 0
    names = [line.split()[0] for line in capsys.readouterr().out.partition("Commands:")[2].splitlines()[1:27]]
    commands = [
        "run",
        "chat",
        "init",
        "build",
        "plan",
        "predict",
        "profile",
        "generate",
        "transcribe",
        "serve",
        "batch",
        "ray",
        "prove",
        "bench",
        "tune",
        "train",
        "index",
        "compare",
    ]
    commands += ["finish", "triton", "sign", "inspect", "cache", "completion", "explain", "doctor"]
    assert names == commands
    heavy = {"numpy", "pydantic", "yaml", "onnxruntime", "onnx", "torch", "transformers", "tokenizers"}
    assert not modules_after("--help") & heavy


def test_no_command_shows_the_help(capsys):
    with pytest.raises(SystemExit) as leaving:
        main([])
    assert leaving.value.code == 0
    assert "Usage: speccompile [OPTIONS] COMMAND" in capsys.readouterr().out.replace("[COMMAND]", "COMMAND")


def test_version():
    run = speccompile("--version")
    assert (run.returncode, run.stdout) == (0, f"speccompile, version {__version__}\n")


def test_plan_imports_no_compiler(make_recipe):
    recipe = make_recipe(drafter={"kind": "model", "model": "drafter"})
    assert not modules_after("plan", recipe) & {"torch", "transformers", "onnx", "onnxruntime", "huggingface_hub"}


@pytest.mark.parametrize(
    ("arguments", "error", "hint"),
    [
        (["pln"], "received the command 'pln', expected one of run, chat, init,", "did you mean 'speccompile plan'?"),
        (["xyzzy"], "received the command 'xyzzy', expected one of", "see speccompile --help"),
        (["version"], "received the command 'version', expected one of", "did you mean 'speccompile --version'?"),
        (["quantize"], "received the command 'quantize', expected one of", "did you mean 'speccompile build'?"),
        (["generate", "b", "it's"], "Got unexpected extra argument (it's)", "give a prompt with --prompt"),
        (["inspect", "b", "c"], "Got unexpected extra argument (c)", "see speccompile inspect --help"),
        (["--quite"], "No such option '--quite'.", "did you mean --quiet?"),
        (["plan", "--jsn"], "No such option '--jsn'.", "did you mean --json?"),
        (["generate", "--do-sample"], "No such option '--do-sample'.", "did you mean --temperature?"),
        (["bench", "--max-length=8"], "No such option '--max-length'.", "did you mean --max-new-tokens?"),
        (["inspect", "--do-sample"], "No such option '--do-sample'.", "see speccompile inspect --help"),
        (["plan", "--xyzzy"], "No such option '--xyzzy'.", "see speccompile plan --help"),
        (["plan"], "Missing argument 'RECIPE'.", "see speccompile plan --help"),
        (["plan", "recipe", "--set"], "Option '--set' requires an argument.", "see speccompile plan --help"),
    ],
)
def test_a_wrong_command_line_exits_with_2(arguments, error, hint, capsys):
    with pytest.raises(SystemExit) as leaving:
        main(arguments)
    assert leaving.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.splitlines()
    assert lines[0].startswith(f"error: {error}")
    assert lines[1:] == [f"hint: {hint}", "help: speccompile explain SC001"]


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (
            BundleError("x is no bundle", hint="build it"),
            1,
            "error: x is no bundle\nhint: build it\nhelp: speccompile explain SC300\n",
        ),
        (ProofError("token 3 differs"), 3, "error: token 3 differs\nhelp: speccompile explain SC600\n"),
        (KeyboardInterrupt(), 130, "\ninterrupted; nothing was kept\n"),
        (
            OSError(errno.ENOSPC, "No space left on device", "build/x"),
            1,
            "error: build/x: No space left on device\n"
            "hint: free some disk space, or choose an output folder elsewhere\n"
            "help: speccompile explain SC802\n",
        ),
        (
            PermissionError(errno.EACCES, "Permission denied"),
            1,
            "error: Permission denied\nhint: check the permissions, or choose another path\n"
            "help: speccompile explain SC803\n",
        ),
        (
            IsADirectoryError(errno.EISDIR, "Is a directory", "x"),
            1,
            "error: x: Is a directory\nhelp: speccompile explain SC804\n",
        ),
        (
            ModuleNotFoundError("No module named 'onnx.defs'", name="onnx.defs"),
            1,
            "error: received an installation without onnx.defs, expected the extra 'compile', "
            "which this command needs\n"
            "hint: pip install 'speccompile[compile]'\n"
            "help: speccompile explain SC800\n",
        ),
    ],
)
def test_what_an_error_tells_and_exits_with(error, code, told, capsys):
    assert run_with(raises(error)) == code
    assert capsys.readouterr() == ("", told)


@pytest.mark.parametrize("error", [ValueError("of ours"), OSError("of ours"), ModuleNotFoundError("of ours", name="x")])
def test_a_defect_shows_its_trace(error, capsys):
    assert run_with(raises(error)) == 70
    told = capsys.readouterr().err
    assert told.startswith("Traceback (most recent call last):")
    assert told.endswith(
        "of ours\nthis is a defect of speccompile: please report it with the lines above\n"
        "help: speccompile explain SC900\n"
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_termination_ends_as_an_interrupt_does(capsys, number):
    before = signal.getsignal(number)
    assert run_with(lambda: os.kill(os.getpid(), number)) == 128 + number
    assert capsys.readouterr().err.endswith("interrupted; nothing was kept\n")
    assert signal.getsignal(number) is before


def test_a_hangup_that_nohup_has_ignored_stays_ignored(capsys):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert run_with(lambda: os.kill(os.getpid(), signal.SIGHUP)) == 0
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
    assert capsys.readouterr().err == ""


def test_ctrl_c_while_the_command_line_is_imported_has_no_trace():
    program = """
import signal, sys
class Late:
    def find_spec(name, *_): name == "speccompile.cli.exit_codes" and signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Late)
from speccompile.cli import main
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (128 + signal.SIGINT, "\ninterrupted; nothing was kept\n")


def test_ctrl_c_inside_an_exec_has_the_exit_code_of_others(tmp_path):
    """Raise it in a string that Python runs, as dataclasses and named tuples are made: -m would end by the signal."""
    (tmp_path / "sitecustomize.py").write_text("""
import sys
class Late:
    def find_spec(name, *_): name == "speccompile.cli.plan" and exec("raise KeyboardInterrupt")
sys.meta_path.insert(0, Late)
""")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", "speccompile", "plan", "x"]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (128 + signal.SIGINT, "\ninterrupted; nothing was kept\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_a_destructor_is_not_lost(capsys, number):
    class Last:
        def __del__(self):
            signal.raise_signal(number)

    def act():
        Last()
        time.sleep(20)

    began, before = time.monotonic(), signal.signal(signal.SIGINT, signal.default_int_handler)
    try:  # what runs tests in parallel ignores SIGINT
        assert run_with(act) == 128 + number
    finally:
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - began < 10
    assert capsys.readouterr().err == "\ninterrupted; nothing was kept\n"


def test_a_panic_of_a_library_in_rust_is_told_like_other_errors(capsys):
    panic = type("PanicException", (BaseException,), {"__module__": "pyo3_runtime"})
    assert run_with(raises(panic("called `Option::unwrap()` on a `None` value"))) == DEFECT_EXIT_CODE
    assert "this is a defect of speccompile" in capsys.readouterr().err
    assert run_with(raises(panic("ThreadPoolBuildError { kind: IOError(Os { code: 11 }) }"))) == 1
    assert capsys.readouterr().err.startswith("error: memory ran out: ThreadPoolBuildError")


def test_a_reader_that_leaves_is_no_error(make_recipe):
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-c", "from speccompile.cli import main; main()", "-q", "plan", str(make_recipe())]
    run = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (run.returncode, run.stderr) == (128 + signal.SIGPIPE, "")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_an_error_of_stdout_names_it(make_recipe, unbuffered):
    command = [sys.executable, "-c", "from speccompile.cli import main; main()", "-q", "plan", str(make_recipe())]
    with Path("/dev/full").open("w") as full:
        run = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, check=False,
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
        )  # fmt: skip
    assert (run.returncode, run.stderr.splitlines()[0]) == (1, "error: stdout: No space left on device")


@pytest.mark.parametrize("closed", [0, 1, 2])
def test_the_null_device_stands_for_a_stream_that_is_closed(make_recipe, closed, tmp_path):
    program = (
        "import os, sys\nfrom pathlib import Path\nfrom speccompile.cli import main\n"
        f"try: main()\nfinally: Path({str(tmp_path / 'place')!r}).write_text(os.readlink('/proc/self/fd/{closed}'))"
    )
    command = shlex.join([sys.executable, "-c", program, "-q", "plan", str(make_recipe())])
    run = subprocess.run(["bash", "-c", f"{command} {closed}<&-"], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    assert ("target.model" in run.stdout) == (closed != 1)
    assert (tmp_path / "place").read_text() == os.devnull


def test_progress_goes_to_stderr_and_quiet_keeps_it_away(capsys):
    def act():
        with log_step("export the target"):
            LOGGER.warning("a warning")

    assert run_with(act) == 0
    assert capsys.readouterr() == ("", "export the target ...\na warning\n")

    def act_quietly():
        choose(NONE)
        act()

    assert run_with(act_quietly) == 0
    assert capsys.readouterr() == ("", "a warning\n")
    assert LOGGER.handlers == []


def test_quiet_silences_the_whole_run(make_recipe, monkeypatch, capsys):
    def look(*arguments):
        with log_step("look"):
            raise BundleError("stopped here")

    monkeypatch.setattr("speccompile.recipe.make_plan", look)
    for arguments, told in ((["-q"], ""), ([], "look ...\n")):
        with pytest.raises(SystemExit):
            main([*arguments, "plan", str(make_recipe())])
        assert capsys.readouterr().err == f"{told}error: stopped here\nhelp: speccompile explain SC300\n"


def test_steps_over_a_second_tell_how_long_they_took(monkeypatch, caplog):
    caplog.set_level(logging.INFO, "speccompile")
    now = [10.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    for title, seconds in (("long", 3.2), ("short", 0.9)):
        with log_step(title):
            now[0] += seconds
    told = [each for each in caplog.messages if "still running" not in each]  # of a thread, which may read the clock
    assert told == ["long ...", "long: 3.2 s", "short ..."]
