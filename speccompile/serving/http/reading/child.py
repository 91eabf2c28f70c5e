"""Program of the process that reads requests in children: `python -m speccompile.serving.http.reading.child SETTINGS`.

It has the tokenizer open, and so a child begins at once.
"""

import json
import sys
from pathlib import Path
from typing import Any

from speccompile.machine.forker import serve_tasks
from speccompile.runtime.text_bundle import TextBundle
from speccompile.serving.http.errors import to_request_error
from speccompile.serving.http.reading.limited_bundle import LimitedBundle, warm_up
from speccompile.serving.http.reading.tasks import Reading


def main(settings: dict[str, Any]) -> None:
    """Read requests until the server closes its end. settings: descriptor, folder, name, grammar_bytes."""
    texts = TextBundle.open(Path(settings["folder"]))
    warm_up(texts)
    reading = Reading(LimitedBundle(texts, settings["grammar_bytes"], texts.grammars.compile), settings["name"])

    def answer(task: str, body: bytes) -> tuple[dict[str, Any] | None, bytes]:
        try:
            return None, reading.task(task)(body)
        except MemoryError:
            raise
        except BaseException as failure:  # noqa: BLE001 -- the client must receive any error, also a panic of a library
            refused = to_request_error(failure)
            names = ("status", "kind", "param", "code", "hint", "headers")
            return {"message": str(refused)} | {name: getattr(refused, name) for name in names}, b""

    serve_tasks(settings["descriptor"], answer)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
