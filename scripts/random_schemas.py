#!/usr/bin/env python
"""Let a bundle answer random JSON schemas, and count the answers that another library finds valid.

    .venv/bin/python scripts/random_schemas.py BUNDLE --count 1000

The bundle was built with constraints: true. Answers are drawn where it samples, at temperature 1, and all must come to
their end. Exit code 1 where one did not, or is not valid.
"""

import argparse
import json
import sys
from decimal import Decimal
from pathlib import Path

import jsonschema
from hypothesis import HealthCheck, Phase, given, seed, settings

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from speccompile.runtime import Bundle
from tests.random_schemas import SCHEMAS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--prompt", default="data = ")
    parser.add_argument("--max-new-tokens", type=int, default=900)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    bundle = Bundle.open(args.bundle, threads=args.threads)
    asks = {"temperature": 1.0} if bundle.manifest.decoding == "sampling" else {}
    done, wrong = 0, list[str]()

    @settings(max_examples=args.count, database=None, deadline=None, phases=[Phase.generate],
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @seed(0)
    @given(SCHEMAS)
    def answer(schema: dict) -> None:
        nonlocal done
        done += 1
        found = bundle.generate(
            args.prompt, constraint=bundle.constraint("json_schema", schema), max_new_tokens=args.max_new_tokens,
            **asks, **({"seed": done} if asks else {}),
        )  # fmt: skip
        try:
            assert found.finish_reason == "stop", found.finish_reason
            jsonschema.Draft202012Validator(schema).validate(json.loads(found.text, parse_float=Decimal))
        except (AssertionError, ValueError, jsonschema.ValidationError) as error:
            wrong.append(f"{json.dumps(schema)}\n  {found.text!r}\n  {str(error).splitlines()[0]}")
            print(wrong[-1], flush=True)
        if done % 100 == 0:
            print(f"{done - len(wrong)} of {done} are valid", file=sys.stderr, flush=True)

    answer()
    print(f"{done - len(wrong)} of {done} schemas have valid answers")
    return int(bool(wrong) or done < args.count)


if __name__ == "__main__":
    sys.exit(main())
