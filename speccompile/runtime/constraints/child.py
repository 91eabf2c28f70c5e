"""Program of the process that tries constraints in children: `python -m speccompile.runtime.constraints.child
SETTINGS`. It has the tokenizer open, and so a child begins at once."""

import json
import os
import sys
from pathlib import Path
from typing import Any

from speccompile.errors import UsageError
from speccompile.machine.forker import serve_tasks
from speccompile.runtime.constraints.grammar import GrammarTokenizer, refused


def main(settings: dict[str, Any]) -> None:
    """Try constraints until the other process closes its end. settings: descriptor, tokenizer, vocabulary_size,
    eos_token_ids."""
    tokenizer = GrammarTokenizer(Path(settings["tokenizer"]), settings["vocabulary_size"], settings["eos_token_ids"])
    tokenizer.open()

    def answer(kind: str, text: bytes) -> tuple[dict[str, Any] | None, bytes]:
        with Path(os.devnull).open("wb") as nowhere:  # what a library says as it ends the process: its signal says it
            os.dup2(nowhere.fileno(), sys.stderr.fileno())
        try:
            tokenizer.compile(kind, json.loads(text))
        except MemoryError:
            raise
        except BaseException as failure:  # noqa: BLE001 -- also a panic of the library
            error = failure if isinstance(failure, UsageError) else refused(kind, str(failure))
            return {"message": str(error), "hint": error.hint}, b""
        return None, b""

    serve_tasks(settings["descriptor"], answer)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
