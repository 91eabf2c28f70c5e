"""The end of writing a GGUF file."""

from pathlib import Path

import gguf


def write_parts(writer: gguf.GGUFWriter, file: Path | str | None = None) -> None:
    """Write what a writer has been given, and close its files."""
    writer.write_header_to_file(file)
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
