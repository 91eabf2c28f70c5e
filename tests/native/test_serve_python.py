"""Python's own server tests, unchanged, against `speccompile-native serve`. What is not run is listed, and why."""

from collections.abc import Iterator

import pytest

from tests.light import (
    test_serve_metrics,
    test_serve_openai,
    test_serve_prompts,
    test_serve_requests,
    test_serve_text_offsets,
)
from tests.light.serve_example import Running
from tests.light.test_serve_openai import greedy, lenient, sampling
from tests.native.python_server import NativeToys, borrow, replaced

__all__ = ["greedy", "lenient", "sampling"]

PUPPET = "the service is a puppet in the test's process"
INSIDE = "it reads or changes what is in the test's process"
OTHER_TOY = "it knows the arithmetic of another toy"
SPECIAL = "its toy writes special tokens, whose text is no part of the answer's"
NO_VOCABULARY = "its bundle has fewer tokens than its graphs give"
NOT_RUN = {
    test_serve_openai: {
        "test_an_adapter_is_a_model_of_its_own": PUPPET,
        "test_top_logprobs_are_the_best_of_the_target": OTHER_TOY,
        "test_logprobs_of_completions_are_columns": SPECIAL,
    },
    test_serve_requests: {
        "test_unknown_fields_are_ignored_and_logged_once": INSIDE,
        "test_the_service_is_asked_what_the_body_says": PUPPET,
        "test_errors_of_the_service_are_told": PUPPET,
        "test_nothing_is_asked_where_not_all_prompts_find_room": PUPPET,
        "test_keys_are_checked_where_requests_are_taken": PUPPET,
        "test_a_file_of_keys_has_one_a_line": INSIDE,
        "test_a_server_may_draft_only_for_those_who_ask": PUPPET,
    },
    test_serve_prompts: {
        "test_conversations_are_written_in_the_template": PUPPET,
        "test_what_a_template_does_not_take_is_refused": INSIDE,
        "test_calls_that_clients_send_back": INSIDE,
    },
    test_serve_metrics: {"test_they_have_vllms_names": INSIDE},
    test_serve_text_offsets: {
        "test_special_tokens_and_unfinished_characters_add_no_text": INSIDE,
        "test_tokens_of_a_stop_string_lie_at_the_end_of_the_text": INSIDE,
        "test_without_a_tokenizer_there_is_no_text": INSIDE,
        "test_detokenize_takes_what_tokenize_gives": NO_VOCABULARY,
    },
}
for _module, _without in NOT_RUN.items():
    borrow(globals(), _module, _without)


@pytest.fixture(scope="module", autouse=True)
def toys(tmp_path_factory, native_build, onnxruntime_library) -> Iterator[NativeToys]:
    made = NativeToys(tmp_path_factory.mktemp("toys"), native_build, onnxruntime_library)
    with replaced(made, *NOT_RUN):
        yield made


@pytest.fixture(scope="module")
def server(toys: NativeToys) -> Iterator[Running]:
    with toys.toy_server() as running:
        yield running
