"""Lines of batch files, written and read."""

import json
from pathlib import Path

from speccompile.serving.http.fields import COMPLETIONS_URL


def line(custom_id: object, body: object, url: str = COMPLETIONS_URL, **changes: object) -> dict:
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": body} | changes


def completion(number: int, **fields: object) -> dict:
    return line(f"r{number}", {"prompt": [number, 7, number + 1], "max_tokens": 5, "return_token_ids": True} | fields)


def write(path: Path, *lines: object) -> Path:
    path.write_text("".join((each if isinstance(each, str) else json.dumps(each)) + "\n" for each in lines))
    return path


def read(path: Path) -> dict[str, dict]:
    """Return answers by custom_id, each of which must be there once."""
    answers = [json.loads(text) for text in path.read_text().splitlines()]
    assert len({each["custom_id"] for each in answers}) == len(answers)
    return {each["custom_id"]: each for each in answers}


def statuses(path: Path) -> dict[str, int]:
    return {name: each["response"]["status_code"] for name, each in read(path).items()}
