"""`speccompile completion`: the script that makes a shell complete the command."""

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_SPECCOMPILE_COMPLETE"
"""Variable by which the script asks the command for completions."""


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the script that completes commands, options and values in SHELL.

    \b
    Examples:
      eval "$(speccompile completion bash)"     # in ~/.bashrc
      eval "$(speccompile completion zsh)"      # in ~/.zshrc, after compinit
      speccompile completion fish | source      # in ~/.config/fish/config.fish
    """
    complete = get_completion_class(shell)
    assert complete is not None, "click has all of SHELLS"
    click.echo(complete(ctx.find_root().command, {}, "speccompile", VARIABLE).source())
