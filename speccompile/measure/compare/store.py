"""Folder of a comparison: measurements of each method, pass by pass, so that an interrupted run can resume.

compare.json          the key: recipe, prompts, options, versions, machine
methods/NAME/method.json the settings, drafter and models of a method
methods/NAME/pass-N.json the results of its Nth pass
bundles/NAME          its bundle, until everything is measured
report.json           the whole report, after the last pass
"""

import shutil
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from speccompile.bundle.work_folders import differing_keys, locked_for, read_record, write_record
from speccompile.errors import UsageError
from speccompile.measure.compare.methods import Method
from speccompile.measure.compare.passes import MeasuredPass

KEY, REPORT, COMMAND = "compare.json", "report.json", "speccompile compare"


class Store:
    """Files of one comparison, written atomically."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def opened(self, key: Mapping[str, Any]) -> AbstractContextManager[None]:
        """Lock the folder for this key, see `locked_for`."""
        return locked_for(self.folder, KEY, key, work="a comparison", option="--output", command=COMMAND)

    def claim(self, method: Method, description: Mapping[str, Any]) -> None:
        """Record a method's description. Raise UsageError if a different method was measured under its name."""
        file = self.folder / "methods" / method.name / "method.json"
        if not file.is_file():
            write_record(file, description)
            return
        if different := differing_keys(description, read_record(file, COMMAND)):
            raise UsageError(
                f"--output: received '{self.folder}', which holds the method {method.name} with other "
                f"{', '.join(different)}, expected the same to go on with",
                hint="give the method another name, give another folder, or remove this one to begin anew",
            )

    def bundle(self, method: Method) -> Path:
        """Return the path of the method's bundle, which may not exist yet."""
        return self.folder / "bundles" / method.name

    def has(self, method: Method, number: int) -> bool:
        """Return whether this pass was measured."""
        return self._pass(method, number).is_file()

    def add(self, method: Method, number: int, found: MeasuredPass) -> None:
        write_record(self._pass(method, number), found.to_json())

    def get(self, method: Method, number: int) -> MeasuredPass:
        """Return a measured pass. Raise UsageError if its file cannot be read."""
        file = self._pass(method, number)
        return MeasuredPass.from_json(read_record(file, COMMAND), str(file))

    def finish(self, report: Mapping[str, Any]) -> None:
        """Write the report and delete the bundles, which the build cache can restore."""
        write_record(self.folder / REPORT, report)
        shutil.rmtree(self.folder / "bundles", ignore_errors=True)

    def _pass(self, method: Method, number: int) -> Path:
        return self.folder / "methods" / method.name / f"pass-{number}.json"
