"""`speccompile`: the table of commands. The module of a command is imported when it is called."""

import gc
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem

from speccompile import __version__
from speccompile.cli import exit_codes
from speccompile.cli.progress_options import progress_options, with_progress_options
from speccompile.cli.standard_streams import (
    name_in_errors,
    read_utf8_instead_of_ascii,
    replace_closed_streams,
    start_again_with_utf8,
)
from speccompile.cli.words import COMMANDS_ELSEWHERE
from speccompile.errors import UsageError
from speccompile.progress import heartbeat

COMMANDS = {
    "run": ("speccompile.cli.run:command", "From a model to text: build what is missing, and generate."),
    "chat": ("speccompile.cli.chat:command", "Talk to a model or a bundle in the terminal."),
    "init": ("speccompile.cli.init:command", "Write a recipe for a model and this machine."),
    "build": ("speccompile.cli.build:command", "Build a bundle from a recipe or a model, and prove it."),
    "plan": ("speccompile.cli.plan:command", "Show what build would do, with every default decided."),
    "predict": ("speccompile.cli.predict:command", "Predict memory and speed before a build, here or on a device."),
    "profile": ("speccompile.cli.profile:command", "Measure this machine for predictions, without a model."),
    "generate": ("speccompile.cli.generate:command", "Generate text with a bundle."),
    "transcribe": ("speccompile.cli.transcribe:command", "Write down what is spoken in a WAV file."),
    "serve": ("speccompile.cli.serve:command", "Serve a bundle behind OpenAI's API."),
    "batch": ("speccompile.cli.batch:command", "Answer a file of requests in OpenAI's batch format."),
    "ray": ("speccompile.cli.ray:command", "Serve, answer files, build and measure on a Ray cluster."),
    "prove": ("speccompile.cli.prove:command", "Prove a bundle again, on other prompts."),
    "bench": ("speccompile.cli.bench:command", "Measure speculative beside autoregressive decoding."),
    "tune": ("speccompile.cli.tune:command", "Choose how a recipe drafts by what it costs and accepts here."),
    "train": ("speccompile.cli.train:command", "Train a recipe's drafter for its target on texts of yours."),
    "index": ("speccompile.cli.index:command", "Index texts of yours, so that a bundle can draft from them."),
    "compare": ("speccompile.cli.compare:command", "Measure every drafting method that a recipe's models allow."),
    "finish": ("speccompile.cli.finish:command", "Build on the device what a build has deferred to it."),
    "triton": ("speccompile.cli.triton:command", "Write a bundle as a model of Triton Inference Server."),
    "sign": ("speccompile.cli.sign:command", "Sign a bundle, so that others know who built it."),
    "inspect": ("speccompile.cli.inspect:command", "Show what a bundle holds."),
    "cache": ("speccompile.cli.cache:command", "List or clear the engines that are kept for the next build."),
    "completion": ("speccompile.cli.completion:command", "Print the script that makes a shell complete all this."),
    "explain": ("speccompile.cli.explain:command", "Say what an error means and what to do, by its code."),
    "doctor": ("speccompile.cli.doctor:command", "Say what this machine can build and run."),
}
"""Command -> (module:attribute, one line of help), in the order of the help."""

OPEN_ENDED = {"run", "chat", "generate", "serve", "ray", "completion"}
"""Commands that wait for input, or write text as it comes: only their steps tell that they still run."""

EPILOG = "Begin with: speccompile build recipes/demo, then: speccompile generate build/demo --prompt 'def main('"


class LazyGroup(click.Group):
    """Command group whose help comes from the table, so that it imports no command."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return with_progress_options(command)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:  # for which click exits with 1
            raise exit_codes.ReaderLeftError from error
        except click.UsageError as error:
            if error.ctx is None:  # click's parser does not say whose option lacks its value
                command = self.get_command(ctx, str(ctx.invoked_subcommand))
                error.ctx = click.Context(command, info_name=ctx.invoked_subcommand, parent=ctx) if command else ctx
            raise

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the completions of a command's name, or of an option, without importing a command."""
        if incomplete.startswith("-"):
            return [each for each in super().shell_complete(ctx, incomplete) if each.value.startswith("-")]
        return [CompletionItem(name, help=text) for name, (_, text) in COMMANDS.items() if name.startswith(incomplete)]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS:
            guess = COMMANDS_ELSEWHERE.get(args[0]) or next(iter(get_close_matches(args[0], COMMANDS, n=1)), None)
            raise UsageError(
                f"received the command '{args[0]}', expected one of {', '.join(COMMANDS)}",
                hint=f"did you mean 'speccompile {guess}'?" if guess else "see speccompile --help",
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(
    cls=LazyGroup, invoke_without_command=True, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, "-V", "--version", prog_name="speccompile")
@progress_options
@click.pass_context
def group(ctx: click.Context) -> None:
    """Compile a target LLM and its drafter into graphs that draft, verify, accept and commit by themselves."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
    elif ctx.invoked_subcommand not in OPEN_ENDED:
        ctx.with_resource(heartbeat(f"speccompile {ctx.invoked_subcommand}"))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line (by default on the process's own arguments) and leave with its exit code."""
    if arguments is None:
        start_again_with_utf8()
        replace_closed_streams()
        read_utf8_instead_of_ascii(sys.stdin)
        sys.stdout = name_in_errors(sys.stdout)
    gc.set_threshold(100_000, 20, 20)  # fewer collections make the import of torch and transformers 20 % faster
    code = exit_codes.run(group, arguments)
    if arguments is None:
        gc.freeze()  # the interpreter would search all that is left for garbage, after a build for half a second
    sys.exit(code)
