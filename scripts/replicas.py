#!/usr/bin/env python3
"""Compare one process with all threads and several processes with some each, over one bundle: tokens/s and memory.

scripts/replicas.py BUNDLE --prompts FILE [--cores N] [--rows N,..] [--new-tokens N] [--repeats N]

A process answers `rows` requests at a time, each process its share of the prompts. Ways take turns and the best pass of
each counts, as the machine may do other things. Memory is what all processes of a way hold together, pages that
they share counted once (PSS, Linux).
"""

import argparse
import multiprocessing as mp
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from speccompile.bundle.prompts import read_prompts
from speccompile.runtime import Bundle


def held_bytes() -> int:
    """Return bytes of this process, its part of shared pages."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def work(folder: str, threads: int, rows: int, prompts: list[Any], new_tokens: int, pipe: Any) -> None:
    """Run a replica: it opens, and answers all its prompts when it is told to."""
    bundle = Bundle.open(folder, threads=threads, verify=False)
    with bundle.serve() as service:
        service.submit(prompts[0], max_new_tokens=new_tokens).generations()
        pipe.send("ready")
        pipe.recv()
        waiting, running, tokens = list(prompts), [], 0
        while waiting or running:
            while waiting and len(running) < rows:
                running.append(service.submit(waiting.pop(0), max_new_tokens=new_tokens))
            tokens += len(running.pop(0).generations()[0].token_ids)
        pipe.send((tokens, held_bytes()))
        pipe.recv()  # the others measure, too


def measure(options: argparse.Namespace, rows: int, processes: int, threads: int) -> tuple[float, int]:
    """Return one pass: new tokens per second of all processes together, and bytes."""
    prompts = read_prompts(options.prompts)
    pipes = []
    for number in range(processes):
        ours, theirs = mp.Pipe()
        arguments = (options.bundle, threads, rows, prompts[number::processes], options.new_tokens, theirs)
        mp.Process(target=work, args=arguments, daemon=True).start()
        pipes.append(ours)
    for pipe in pipes:
        pipe.recv()
    start = time.perf_counter()
    for pipe in pipes:
        pipe.send("go")
    answers = [pipe.recv() for pipe in pipes]
    seconds = time.perf_counter() - start
    for pipe in pipes:
        pipe.send("end")
    return sum(tokens for tokens, _ in answers) / seconds, sum(size for _, size in answers)


def ways(cores: int) -> Iterator[tuple[int, int]]:
    """Yield (processes, threads of each) that use all cores."""
    yield from ((cores // threads, threads) for threads in range(cores, 0, -1) if cores % threads == 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle")
    parser.add_argument("--prompts", type=Path, required=True)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--rows", default="1,4")
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    mp.set_start_method("spawn")
    print("processes  threads  rows each  tokens/s  memory MB")
    for rows in map(int, options.rows.split(",")):
        found: dict[tuple[int, int], list[tuple[float, int]]] = {way: [] for way in ways(options.cores)}
        for _ in range(options.repeats):
            for way, passes in found.items():
                passes.append(measure(options, rows, *way))
        for (processes, threads), passes in found.items():
            rate, size = (max(each) for each in zip(*passes, strict=True))
            print(f"{processes:9}  {threads:7}  {rows:9}  {rate:8.1f}  {size / 1e6:9.0f}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
