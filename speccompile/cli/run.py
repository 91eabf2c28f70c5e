"""`speccompile run`: from a model to text, with one command."""

from typing import Any

import click

from speccompile.cli.adapter_option import USED_ADAPTER, take_adapter
from speccompile.cli.generation_output import write_generations
from speccompile.cli.model_bundle import ModelOptions, model_options, open_model
from speccompile.cli.options import IMAGES, NEW_TOKENS, SESSION, THREADS, TRUNCATE, Option
from speccompile.cli.prompt_input import check_text, read_text
from speccompile.cli.sampling_options import needs_sampling, sampling_options
from speccompile.errors import UsageError


@click.command("run")
@click.argument("model")
@click.argument("text", metavar="[PROMPT]", required=False)
@click.option("-p", "--prompt", metavar="TEXT", cls=Option, help="The prompt, instead of PROMPT; - for stdin.")
@click.option("-n", "--max-new-tokens", default=128, show_default=True, help="At most this many.", **NEW_TOKENS)
@click.option("--image", "images", **IMAGES)
@model_options
@sampling_options
@click.option("--raw", is_flag=True, help="Continue the prompt as it is, without the tokenizer's chat template.")
@click.option("--truncate", **TRUNCATE)
@click.option("--session", **SESSION)
@click.option("--adapter", **USED_ADAPTER)
@click.option("--stop", metavar="TEXT", multiple=True, help="End before this text. May be given several times.")
@click.option("--autoregressive", is_flag=True, help="One token a round, without drafts.")
@click.option("--threads", **THREADS)
@click.option("--skip-prove", is_flag=True, help="Where the bundle has to be built: do not prove it.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end, as generate does.")
def command(
    model: str,
    text: str | None,
    prompt: str | None,
    images: tuple[str, ...],
    built_as: ModelOptions,
    raw: bool,
    threads: int | None,
    skip_prove: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Generate text with MODEL: a model's folder in Hugging Face layout, a GGUF file, a Hub id, or a
    bundle.

    A model is built into a bundle once, into the cache; from then on text begins at once. The bundle drafts with
    layers that the checkpoint carries for it (MTP), else with the drafter that --drafter names or that lies beside the
    model (a folder drafter, draft, head or assistant), else with what the text has said before. Its weights keep their
    stored precision, or the largest that fits into the memory. stderr says what was decided, and `speccompile cache`
    lists and removes these bundles.

    With --image the bundle of a model sees pictures, where the model does; in a chat they come with the first message.

    A tokenizer's chat template is applied where there is one. Without a prompt, on a terminal, a chat begins: see
    `speccompile chat --help`.

    \b
    Examples:
      speccompile run recipes/demo/target 'def main(' -n 64
      speccompile run organisation/model 'Why is the sky blue?' --fast
      speccompile run build/demo --prompt - < prompt.txt
    """
    if text is not None and prompt is not None:
        raise UsageError("received a prompt and --prompt, expected one of them", hint="leave one out")
    given = prompt if text is None else text
    sampling = needs_sampling(options)
    opened = open_model(model, built_as, sampling=sampling, threads=threads, prove=not skip_prove, images=images)
    if given is None:
        from speccompile.cli.chat import converse, refuse_images, require_terminal

        require_terminal()
        session = options.pop("session")
        refuse_images(images, options, session)
        with opened as bundle:
            take_adapter(bundle, options)
            converse(bundle, options, system=None, show_drafts=False, session=session, images=images)
        return
    asked = read_text("the prompt", given) if given == "-" else given
    check_text("the prompt", asked)  # before a model is built for it
    with opened as bundle:
        take_adapter(bundle, options)
        options["images"] = list(images) or None
        options["chat"] = bundle.chat_template is not None and not raw
        write_generations(bundle, asked, options, as_json=as_json)
