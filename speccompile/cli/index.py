"""`speccompile index`: build an index of texts for retrieval drafting."""

from pathlib import Path

import click

from speccompile.cli.exit_codes import Interrupted


@click.command("index")
@click.argument("texts", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--tokenizer", metavar="PATH", required=True, type=click.Path(path_type=Path),
    help="The target's tokenizer.json, its folder, or a bundle of it.",
)  # fmt: skip
@click.option("--output", "-o", required=True, type=click.Path(path_type=Path), help="The folder to make.")
@click.option(
    "--field", metavar="NAME", default="text", show_default=True, help="Of .jsonl files: what holds the text."
)
def command(texts: tuple[Path, ...], tokenizer: Path, output: Path, field: str) -> None:
    """Index TEXTS, so that a bundle can draft what followed there (drafter.kind: retrieval).

    TEXTS are .jsonl files with one document a line, text files, and folders of both; of a folder, hidden files and
    those that are no text are left out, and stderr says so. All of it is UTF-8. The folder that is written is printed
    on stdout: tokens and a suffix array over them, 8 bytes a token.

    Only what is worked on is in memory, about 3 GB, however large the texts are. A build that is interrupted goes on
    when the same command is given again, and begins anew where a text, the tokenizer or the field is another.

    \b
    Examples:
      speccompile index answers.jsonl --tokenizer recipes/demo/target --output build/index
      speccompile index src docs notes.txt --tokenizer build/demo --output build/index
      speccompile index pairs.jsonl --field answer --tokenizer target/tokenizer.json -o build/index

    \b
    Then, in the recipe:
      drafter: {kind: retrieval, index: ../build/index, tree: {depth: 8, nodes: 16}}
    """
    from speccompile.index.build import build_index
    from speccompile.progress import LOGGER

    try:
        header = build_index(list(texts), tokenizer, output, field=field)
    except KeyboardInterrupt as interrupt:
        raise Interrupted("what was done is kept; run the same command again to go on") from interrupt
    size = sum(record["bytes"] for record in header.files.values())
    LOGGER.info("%d documents, %d tokens, %.1f MB", header.documents, header.tokens, size / 1e6)
    click.echo(output)
