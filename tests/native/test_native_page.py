"""The page of `speccompile-native serve` in Chromium, over a toy bundle."""

from collections.abc import Iterator
from typing import Any

import pytest

from speccompile.runtime import Bundle
from tests.light.page_example import Page, chromium
from tests.light.test_cli_serve import ready
from tests.native.served import folders, started
from tests.native.toy_onnx import MAX_LENGTH

__all__ = ["folders"]

pytestmark = pytest.mark.sweep("starts a browser")


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    with chromium() as driver:
        yield driver


def test_an_answer_comes_with_its_drafts_and_numbers(driver, folders, native_build, onnxruntime_library):
    alone = Bundle.open(folders["greedy"], threads=1)
    text = alone.text.encode("<s>user:def\nassistant:", special_tokens=False)
    with started("native", native_build, onnxruntime_library, folders["greedy"]) as own:
        page = Page(driver, ready(own[1]).address)
        page.ask("def")
        assert not page.has(".failed"), page.text(".failed")
        kept = page.run("return JSON.parse(localStorage.getItem('speccompile:conversation:/')).value[0].answer")
        assert kept == alone.generate(text, max_new_tokens=MAX_LENGTH).text
        assert page.has(".answer .d")
        assert "acceptance length" in page.text(".stats summary")
        driver.get("about:blank")
