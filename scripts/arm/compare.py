"""Compare the results of machines bit for bit, and print a table: compare.py ANSWERS FIRST OTHER ...

ANSWERS has a folder for each machine, as answer.py wrote it. The exit status is 1 when anything differs.
"""

import hashlib
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from answer import CAREFREE
from numpy.typing import NDArray

PATHS = {"neoverse-n1": ["neon_dot", "scalar"], "cortex-a72": ["scalar"]}
"""Processor -> kernel paths that it must have, the fastest first."""

SHOWN = 3
"""Maximum differences to print for a row."""

WAYS = ("speculative", "autoregressive")

Outputs = dict[str, NDArray[np.float32]]
Told = dict[str, Any]
"""tokens.json, or its part about a bundle."""


class Answers:
    """Results of one machine and kernel path for all cases. `path` ends with CAREFREE for such a host thread."""

    def __init__(self, file: Path) -> None:
        self.machine, self.path = file.parent.name, file.stem
        self._arrays = np.load(file)
        self._names: dict[str, list[str]] = {}
        for name in sorted(self._arrays.files):
            self._names.setdefault(name.partition(".")[0], []).append(name)

    def __str__(self) -> str:
        return f"{self.machine} {self.path}"

    @property
    def cases(self) -> list[str]:
        return list(self._names)

    def outputs(self, case: str) -> Outputs:
        return {name.partition(".")[2]: self._arrays[name] for name in self._names.get(case, [])}


@dataclass
class Row:
    """Row of the table."""

    what: str
    compared: str
    answers: int
    differences: list[str] = field(default_factory=list)


def digest(outputs: Outputs) -> str:
    found = hashlib.sha256()
    for name, array in outputs.items():
        found.update(f"{name} {array.shape}\n".encode())
        found.update(array.tobytes())
    return found.hexdigest()


def first_difference(one: Outputs, other: Outputs) -> str:
    """Describe the first difference of two results of a case."""
    for name in sorted(one.keys() | other.keys()):
        if name not in one or name not in other or one[name].shape != other[name].shape:
            shapes = [answers[name].shape if name in answers else None for answers in (one, other)]
            return f"{name}: the shapes are {shapes[0]} and {shapes[1]}"
        places = np.flatnonzero(one[name].view(np.uint32) != other[name].view(np.uint32))
        if len(places):
            place = tuple(int(each) for each in np.unravel_index(places[0], one[name].shape))
            values = [f"{x:.9g} ({x.tobytes()[::-1].hex()})" for x in (one[name][place], other[name][place])]
            counted = f"{len(places)} of {one[name].size} numbers differ"
            return f"{name} {list(place)} is {values[0]} and {values[1]}, {counted}"
    return "nothing"


def compare_kernels(answers: list[Answers], digests: Path) -> Iterator[Row]:
    """Yield a row for each operator; a line on stdout for each case and digest."""
    reference, others = answers[0], answers[1:]
    rows: dict[str, Row] = {}
    counts, numbers = Counter[str](), Counter[str]()
    with digests.open("w") as file:
        for case in sorted({case for each in answers for case in each.cases}):
            operator, expected = case.partition(" ")[0], reference.outputs(case)
            row = rows.setdefault(operator, Row(operator, "", len(answers)))
            counts[operator] += 1
            numbers[operator] += sum(array.size for array in expected.values())
            by_digest = {digest(expected): [str(reference)]}
            for each in others:
                outputs = each.outputs(case)
                same = by_digest.setdefault(digest(outputs), [])
                if not same:
                    row.differences.append(f"{case}, {reference} and {each}: {first_difference(expected, outputs)}")
                same.append(str(each))
            file.writelines(f"{found} {who}: {case}\n" for found, same in by_digest.items() for who in same)
            _print_case(case, by_digest, len(answers))
    for operator, row in rows.items():
        row.compared = f"{counts[operator]} cases, {numbers[operator]:,} numbers"
        yield row


def _print_case(case: str, by_digest: dict[str, list[str]], count: int) -> None:
    for found, same in by_digest.items():
        who = f"all {count}" if len(same) == count else "; ".join(same)
        print(f"{found[:16]}  {case}: {who}")


def compare_tokens(told: dict[str, Told]) -> Iterator[Row]:
    """Yield rows for each bundle. told: machine -> its tokens.json; the first machine is compared with the others."""
    for bundle in next(iter(told.values()))["bundles"]:
        yield from _compare_bundle(
            f"demo in {bundle}", {machine: each["bundles"][bundle] for machine, each in told.items()}
        )


def _compare_bundle(what: str, found: dict[str, Told]) -> Iterator[Row]:
    """Yield a row for its windows, one for each mode of decoding, and one that compares the modes on one machine."""
    (first, its), *others = found.items()
    yield Row(f"{what}, windows", f"of {_listed(its['widths'])} tokens", len(found), list(_inexact(what, found)))
    counts = [len(each["tokens"]) for each in its["autoregressive"]]
    compared = f"{len(counts)} prompts, {sum(counts)} tokens"
    for way in WAYS:
        row = Row(f"{what}, {way}", compared, len(found))
        for machine, other in others:
            row.differences += _differences(f"{what}: prompt", its["prompts"], other["prompts"], first, machine)
            for part in ("tokens", "accepted"):
                mine, theirs = ([prompt[part] for prompt in side[way]] for side in (its, other))
                row.differences += _differences(f"{row.what}: {part} of prompt", mine, theirs, first, machine)
        yield row
    row = Row(f"{what}, either way", compared, len(found))
    for machine, each in found.items():
        mine, theirs = ([prompt["tokens"] for prompt in each[way]] for way in WAYS)
        row.differences += _differences(f"{what} on {machine}: tokens of prompt", mine, theirs, *WAYS)
    yield row


def _inexact(what: str, found: dict[str, Told]) -> Iterator[str]:
    """Yield the machines on which a token's logits depend on its window, as `Bundle.open` has measured."""
    for machine, each in found.items():
        if each["differing"]:
            yield f"{what}, {machine}: windows of {_listed(each['differing'])} tokens are not as single tokens"


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers)) or "no"


def _differences(what: str, one: list[list[int]], other: list[list[int]], name: str, other_name: str) -> Iterator[str]:
    for prompt, pair in enumerate(zip(one, other, strict=True)):
        for place, (left, right) in enumerate(zip_longest(*pair)):
            if left != right:
                yield f"{what} {prompt}, position {place}: {left} ({name}) and {right} ({other_name})"
                break


def missing_paths(answers: Iterable[Answers]) -> Iterator[str]:
    """Yield the machines whose kernel paths are not the expected ones."""
    found: dict[str, list[str]] = {}
    for each in answers:
        found.setdefault(each.machine, []).append(each.path)
    for machine, expected in PATHS.items():
        paths = {path.removesuffix(CAREFREE) for path in found.get(machine, [])}
        if paths != set(expected):
            yield f"{machine} runs {', '.join(sorted(paths)) or 'nothing'}, expected {', '.join(expected)}"


def missing_choices(told: dict[str, Told]) -> Iterator[str]:
    for machine, expected in PATHS.items():
        if machine in told and told[machine]["path"] != expected[0]:
            yield f"{machine} has taken {told[machine]['path']} for the demo, expected {expected[0]}"


def render(rows: list[Row]) -> str:
    lines = [("", "compared", "answers", "equal")]
    lines += [(row.what, row.compared, str(row.answers), "no" if row.differences else "yes") for row in rows]
    widths = [max(len(line[column]) for line in lines) for column in range(4)]
    padded = [[cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in lines]
    return "\n".join("  ".join(line).rstrip() for line in padded)


def open_answers(folder: Path) -> list[Answers]:
    """Open the results of one machine, those with CAREFREE last."""
    return sorted(map(Answers, folder.glob("*.npz")), key=lambda each: (each.path.endswith(CAREFREE), each.path))


def main(folder: Path, machines: list[str]) -> int:
    answers = [each for machine in machines for each in open_answers(folder / machine)]
    told = {machine: json.loads((folder / machine / "tokens.json").read_text()) for machine in machines}
    rows = [*compare_kernels(answers, folder / "digests.txt"), *compare_tokens(told)]
    wrong = [*missing_paths(answers), *missing_choices(told)]
    print()
    for machine in machines:
        print(f"{machine}: {'; '.join(each.path for each in answers if each.machine == machine)}")
    print("the demo: " + "; ".join(f"{machine} by {each['path']}" for machine, each in told.items()) + "\n")
    print(render(rows))
    for row in rows:
        wrong += row.differences[:SHOWN]
        if len(row.differences) > SHOWN:
            wrong.append(f"{row.what}: {len(row.differences) - SHOWN} more differences")
    if wrong:
        print("\nwrong:\n" + "\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
