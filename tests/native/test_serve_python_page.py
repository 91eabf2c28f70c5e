"""Python's tests of the page at /, unchanged, against `speccompile-native serve`."""

from collections.abc import Iterator

import pytest

from tests.light import test_page
from tests.light.test_page import server
from tests.native.python_server import NativeToys, borrow, replaced

__all__ = ["server"]
SERVED = {
    "test_files_come_without_a_key_and_with_the_headers_that_fence_them_in",
    "test_a_browser_asks_whether_a_file_has_changed_and_is_told_that_it_has_not",
    "test_head_has_the_headers_alone",
    "test_no_other_file_is_there",
    "test_an_icon_that_browsers_ask_for_is_no_error",
    "test_what_the_page_asks_needs_the_key",
    "test_without_the_page_there_is_nothing",
}
"""The others look at the files themselves, or at Python's processes."""
_OTHERS = {name for name in vars(test_page) if name.startswith("test_")} - SERVED
borrow(globals(), test_page, dict.fromkeys(_OTHERS, "it asks no server"))


@pytest.fixture(scope="module", autouse=True)
def toys(tmp_path_factory, native_build, onnxruntime_library) -> Iterator[NativeToys]:
    made = NativeToys(tmp_path_factory.mktemp("toys"), native_build, onnxruntime_library)
    with replaced(made, test_page):
        yield made
