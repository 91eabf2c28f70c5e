"""Every process of a parallel run keeps to a core: threads of graphs that wait for work would take the others'."""

import os
import re


def pytest_configure() -> None:
    worker = re.search(r"\d+$", os.environ.get("PYTEST_XDIST_WORKER", ""))
    if worker and hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[int(worker.group()) % len(cores)]})
