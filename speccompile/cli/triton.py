"""`speccompile triton`: a bundle as a model of Triton Inference Server."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from speccompile.cli.options import Option
from speccompile.progress import LOGGER

if TYPE_CHECKING:
    from speccompile.serving.triton.repository import WrittenModel

PATH = click.Path(path_type=Path)


@click.command("triton")
@click.argument("folder", metavar="BUNDLE", type=PATH)
@click.option(
    "-o", "--output", metavar="REPOSITORY", type=PATH, cls=Option, required=True, help="The model repository's folder."
)
@click.option("--name", metavar="NAME", help="The model's name; by default the bundle's.")
@click.option(
    "--backend", type=click.Choice(["auto", "python", "native"]), default="auto", show_default=True,
    help="auto: native, where it is compiled and takes the bundle.",
)  # fmt: skip
@click.option(
    "--instances", metavar="N", type=click.IntRange(min=1), default=1, show_default=True,
    help="Generations, or batches of them, that run at the same time.",
)  # fmt: skip
@click.option("--threads", metavar="N", type=click.IntRange(min=1), help="Threads; by default the server's cores.")
@click.option("--engine", metavar="NAME", help="Engine of the bundle; by default the first that can run there.")
@click.option("--link", is_flag=True, help="Link to BUNDLE by its path, instead of taking its files.")
@click.option(
    "--environment", metavar="VENV", type=PATH, help="Python's environment, by the path it has in the server."
)
@click.option(
    "--libraries", metavar="FOLDER", type=PATH, help="Where the native backend was compiled to, if elsewhere."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(folder: Path, output: Path, as_json: bool, **options: Any) -> None:
    """Write BUNDLE as a model into a model repository of Triton Inference Server.

    REPOSITORY/NAME then holds everything that the server needs: the bundle's files are hard links where the disk allows
    it, else copies. A model of an earlier call is replaced, once the new one is whole; other models stay.

    The native backend is C++ and needs no Python in the server; its libraries, ONNX Runtime's among them, lie beside
    the model. Python's backend has engines of TensorRT and any tokenizer as well, and needs no compiler. It runs in the
    server's Python, which must have speccompile's runtime, with `numpy<2` in servers that do not know numpy 2 (24.10
    does not); a model that is loaded with the wrong one says so.

    Every request is answered by a stream of responses (decoupled): with `stream` by pieces as they come, else by one.
    Requests that wait for an instance run side by side, up to the bundle's batch, where they agree in max_tokens,
    stop_words, chat, logprobs and autoregressive. Tensors have the names that TensorRT-LLM's models have, so that
    NVIDIA's OpenAI front end can send them; all are optional but the prompt.

    \b
    Inputs
      text_input, input_ids        the prompt: one of them
      max_tokens, stop_words       128 and none by default
      stream                       pieces as they come; false by default
      temperature, top_k, .. seed  the options of sampling
      logprobs, autoregressive, chat    as in `generate`
    Outputs
      text_output, output_ids      what is new in this response
      finish_reason, num_input_tokens, num_output_tokens    in the last one
      generation                   in the last one: the object that
                                   `generate --json` prints, as text

    \b
    The JSON object has the keys
      folder   the model's folder
      backend  python or native
      reason   why this one

    \b
    Examples:
      speccompile triton build/demo --output models
      tritonserver --model-repository models
      curl -N localhost:8000/v2/models/demo/generate_stream \\
        -d '{"text_input": "def main(", "max_tokens": 64, "stream": true}'
    """
    from speccompile.serving.triton.repository import RepositoryOptions, write

    written = write(folder, output, RepositoryOptions(**options))
    LOGGER.info("the %s backend was taken: %s", written.backend, written.reason)
    click.echo(json.dumps(_as_object(written), indent=2) if as_json else written.folder)


def _as_object(written: "WrittenModel") -> dict[str, str]:
    return {"folder": str(written.folder), "backend": written.backend, "reason": written.reason}
