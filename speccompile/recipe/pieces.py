"""A translator without tokenizer.json as a folder with one, in the user's cache: everything else reads such folders.

The folder holds links to the model's files, and the tokenizer that its vocabulary and its model of SentencePiece make:
see `speccompile.compiler.checkpoints.piece_tokenizers`. Its name is the digest of the files' paths, sizes and times.
"""

import hashlib
from pathlib import Path

from speccompile import __version__
from speccompile.bundle.cache import FOLDER, cache_folder
from speccompile.bundle.manifest import canonical_json
from speccompile.compiler.checkpoints.change_guard import FileStamp
from speccompile.compiler.checkpoints.facts import TOKENIZER, TOKENIZER_CONFIG
from speccompile.compiler.checkpoints.json_files import CONFIG, read_json_object
from speccompile.compiler.checkpoints.piece_tokenizers import make_tokenizer, piece_files
from speccompile.errors import CheckpointError
from speccompile.machine.plain_files import path_text
from speccompile.recipe.gguf import CACHE, write_description

FORMAT = 1
"""Version of the files in such folders."""


def with_tokenizer(folder: Path) -> Path:
    """Return the folder of a model, or of its description with a tokenizer.json if the model has none and one can be
    made. Raise as `make_tokenizer` does, and CheckpointError if the description cannot be written."""
    model_type = (read_json_object(folder / CONFIG) or {}).get("model_type")
    if not piece_files(folder, model_type):
        return folder
    files = sorted(path.absolute() for path in folder.iterdir() if path.is_file() and path.name != TOKENIZER_CONFIG)
    stamped = [*files, *(each for each in (folder / TOKENIZER_CONFIG,) if each.is_file())]
    stamps = [[path_text(file.absolute()), *vars(FileStamp.of(file)).values()] for file in stamped]
    key = {"pieces": True, "files": stamps, "format": FORMAT, "speccompile": __version__}
    made = cache_folder(CACHE) / hashlib.sha256(canonical_json(key)).hexdigest()
    if not (made / TOKENIZER).is_file():
        tokenizer, config = make_tokenizer(folder, str(model_type))
        try:
            write_description(made, files, {TOKENIZER: tokenizer, TOKENIZER_CONFIG: config}, TOKENIZER)
        except OSError as error:
            raise CheckpointError(
                f"{made.parent}: cannot be written: {error.strerror}, expected a place for the tokenizer of {folder}",
                hint=f"set {FOLDER} to a folder that may be written",
            ) from error
    return made
