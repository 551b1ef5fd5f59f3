"""Detection of a dump's form takes time in proportion to the bytes that it looks at."""

from __future__ import annotations

import time

import pytest

from ticdc_lab.sources import json_objects, pattern_detection, refused_forms


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes each question for JSON was given."""
    sizes, is_json = list[int](), json_objects.is_json

    def counted(text: bytes) -> bool:
        sizes.append(len(text))
        return is_json(text)

    monkeypatch.setattr(pattern_detection, "is_json", counted)
    return sizes


@pytest.mark.parametrize("field", [b"a\t", b"[\t", b"{\t"])
def test_separators_inside_a_value_are_not_each_a_beginning_of_json(field: bytes, parsed: list[int]) -> None:
    """Many tabs in one value: JSON is looked for behind the first ones only."""
    text = field * 5_000 + b"x"
    assert pattern_detection._extra([text] * 3, b"\t", is_shown=True) == ["key"]
    assert sum(parsed) <= 40 * 3 * len(text)


def test_json_behind_headers_and_a_key_is_found_as_before() -> None:
    """Both fields are detected, also where the value itself contains separators."""
    lines = [b'a:1\tk\t{"n":"x\ty"}'.replace(b"\ty", b" y")] * 3
    assert pattern_detection._extra(lines, b"\t", is_shown=True) == ["headers", "key"]
    assert pattern_detection._extra([b'{"n":1}'] * 3, b"\t", is_shown=True) == []


def test_objects_in_an_array_are_not_each_an_end_of_the_key(parsed: list[int]) -> None:
    """A key of many objects: where it ends is found by one scan."""
    line = b'{"a":[' + b",".join([b'{"x":1}'] * 5_000) + b']}\t{"b":1}'
    assert pattern_detection._before_json([line, line]) == (b"\t", b"null")
    assert sum(parsed) <= 2 * len(line) * 2


def test_brackets_without_an_end_are_passed_over_once() -> None:
    """A quarter of a million open brackets took a minute of CPU time."""
    begun = time.process_time()
    assert refused_forms._values_in_lines("f", b"{" * 250_000 + b"\n") == ""
    assert "%s" in refused_forms._values_in_lines("f", b'topic 0 17 {"a":{"b":1}} end\n' * 3)
    assert time.process_time() - begun < 10
