"""What a worker writes down: a sentence for people, fields for programs."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from io import StringIO

import pytest

from ticdc_lab.ddl_service import logs
from ticdc_lab.ddl_service.node import Node
from ticdc_lab.ddl_service.sqlite_store import SqliteStore
from ticdc_lab.machines.machine import Changed, Decided


@pytest.fixture
def stream() -> Iterator[StringIO]:
    """Where the log goes; pytest's own handlers are back afterwards."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    yield StringIO()
    root.handlers[:] = before
    root.setLevel(level)


def test_a_line_of_json_has_fields_by_name(stream: StringIO, tmp_path: object) -> None:
    """Names of tables from users too: a line stays one line, and the field is the name as it is."""
    logs.begin(logs.JSON, "node-1", stream)
    store = SqliteStore(str(tmp_path))
    node = Node(None, "node-1", store)
    node._carry_out([Changed("ddl-owner:c", None, "ddl-service-1-c", "its campaign is the oldest")])
    node._carry_out([Decided("job:c/1", None, "it waits for a\nb", ())])
    try:
        raise ValueError("x")
    except ValueError:
        logging.getLogger("ticdc_lab.ddl_service").exception("failed")
    changed, decided, failed = map(json.loads, stream.getvalue().splitlines())
    assert {k: changed[k] for k in ("level", "node", "event", "subject", "before", "after")} == {
        "level": "info", "node": "node-1", "event": "changed", "subject": "ddl-owner:c", "before": None,
        "after": "ddl-service-1-c",
    }  # fmt: skip
    assert (decided["because"], "\\n" in decided["message"]) == ("it waits for a\nb", True)
    assert (failed["level"], "ValueError: x" in failed["traceback"]) == ("error", True)
    store.close()


def test_lines_for_people_are_as_before(stream: StringIO) -> None:
    """The time and the sentence."""
    logs.begin(logs.TEXT, "node-1", stream)
    logging.getLogger("ticdc_lab").info("a sentence", extra=logs.fields(event="x"))
    assert stream.getvalue().endswith(" a sentence\n")
