"""Files of requests and of answers, before anything is asked."""

import json

import pytest

from speccompile.errors import EngineError, UsageError
from speccompile.serving.batch.requests import read_lines, sorted_by_prefix
from speccompile.serving.batch.results import Result, Results
from speccompile.serving.batch.run import Batch
from speccompile.serving.http.fields import CHAT_URL
from tests.full_disk import largest_file
from tests.light.batch_example import completion, line, read, statuses, write


def test_bytes_that_are_no_text_are_named_and_many_wrong_lines_are_counted(tmp_path):
    (tmp_path / "in.jsonl").write_bytes(b'{"custom_id": "\xff"}\n' + b"1\n" * 13)
    with pytest.raises(
        UsageError, match=r"(?s)received 14 lines .*line 1: received no JSON: 'utf-8'.*and 4 more"
    ) as it:
        read_lines(tmp_path / "in.jsonl")
    assert "line 10:" in str(it.value)
    assert "line 11:" not in str(it.value)


@pytest.mark.parametrize(
    ("content", "message"), [(b"\n \n", "received a file without lines"), (None, "No such file or directory")]
)
def test_files_without_requests_are_refused(tmp_path, content, message):
    if content is not None:
        (tmp_path / "in.jsonl").write_bytes(content)
    with pytest.raises(UsageError, match=message):
        Batch.read(tmp_path / "in.jsonl", tmp_path / "out.jsonl")


def test_answers_never_go_into_the_file_of_requests(tmp_path):
    source = write(tmp_path / "in.jsonl", completion(1))
    with pytest.raises(UsageError, match="received the file of the requests, expected another one"):
        Batch.read(source, tmp_path / "." / "in.jsonl")


def test_a_byte_order_mark_and_windows_ends_are_no_part_of_lines(tmp_path):
    text = "\ufeff" + "\r\n".join(json.dumps(completion(number)) for number in range(2)) + "\r\n"
    (tmp_path / "in.jsonl").write_text(text, newline="")
    assert [each.custom_id for each in read_lines(tmp_path / "in.jsonl")] == ["r0", "r1"]


def test_prompts_that_begin_alike_are_neighbours(tmp_path):
    said = ["ab", "zz", "abc", "zzz", "abd"]
    chats = [line(each, {"messages": [{"role": "user", "content": each}]}, CHAT_URL) for each in said]
    mixed = [*chats, line("t", {"prompt": "zz", "tools": None}), line("u", {"messages": [], "tools": [{}]}, CHAT_URL)]
    lines = read_lines(write(tmp_path / "in.jsonl", *mixed))
    assert [each.custom_id for each in sorted_by_prefix(lines)] == ["ab", "abc", "abd", "zz", "zzz", "u", "t"]


@pytest.mark.parametrize("content", ["hello\nyou\n", '{"a": 1}\n{', "[1]\n"])
def test_a_file_that_holds_other_things_is_left_alone(tmp_path, content):
    lines = read_lines(write(tmp_path / "in.jsonl", completion(1)))
    (tmp_path / "out.jsonl").write_text(content)
    opened = Results.open(tmp_path / "out.jsonl", lines)
    with pytest.raises(UsageError, match=r"out\.jsonl line 1: received a line that is no answer"), opened:
        pass
    assert (tmp_path / "out.jsonl").read_text() == content


def test_a_file_that_cannot_be_written_is_refused(tmp_path):
    opened = Results.open(tmp_path / "none" / "out.jsonl", [])
    with pytest.raises(UsageError, match="expected a file that can be written: No such file"), opened:
        pass


@pytest.mark.parametrize("failed", [False, True], ids=["as it is", "rewritten"])
def test_one_process_at_a_time_fills_a_file(tmp_path, failed):
    lines = read_lines(write(tmp_path / "in.jsonl", completion(1)))
    output = tmp_path / "out.jsonl"
    if failed:
        with Results.open(output, lines) as results:
            results.add(Result(lines[0], 500, {}))
    with Results.open(output, lines) as results:
        assert results.completed_ids == frozenset()
        other = Results.open(output, lines)
        with pytest.raises(UsageError, match="expected a file that no other process fills"), other:
            pass
        results.add(Result(lines[0], 200, {"text": "\ud800 größe"}))
    assert read(output)["r1"]["response"]["body"] == {"text": "\ud800 größe"}
    assert sorted(tmp_path.iterdir()) == [tmp_path / "in.jsonl", output]


def test_a_full_disk_is_told_with_the_file(tmp_path):
    lines, output = read_lines(write(tmp_path / "in.jsonl", completion(1))), tmp_path / "out.jsonl"
    with Results.open(output, lines) as results, largest_file(16), pytest.raises(OSError, match="File too") as caught:
        results.add(Result(lines[0], 200, {}))
    assert caught.value.filename == str(output)


def test_an_engine_that_fails_ends_the_run_and_what_was_done_is_kept(tmp_path):
    batch = Batch.read(write(tmp_path / "in.jsonl", *map(completion, range(3))), tmp_path / "out.jsonl")

    def answers(lines):
        yield Result(lines[0], 200, {"usage": {"prompt_tokens": 3, "completion_tokens": 1,
                                               "prompt_tokens_details": {"cached_tokens": 0}}})  # fmt: skip
        raise EngineError("the service has ended: no memory")

    with pytest.raises(EngineError, match="the service has ended"):
        batch.run(answers)
    assert str(batch.account) == "1 done + 0 failed + 0 skipped + 2 left = 3 given"
    assert statuses(tmp_path / "out.jsonl") == {"r0": 200}
