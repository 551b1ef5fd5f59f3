"""Each promise of `docs/promises.md` names a test that is there, and the bounds are the ones of the code."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace

import conftest
import killing
import pytest
from together import together

from ticdc_lab.codecs.known import BOUNDS

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs/promises.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)


@together(("file", "name"), NAMED)
def test_a_promise_names_a_test_that_is_there(file: str, name: str) -> None:
    """A test that was renamed leaves no promise without one."""
    assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8")


def test_a_failure_of_a_test_that_kills_says_how_to_repeat_it() -> None:
    """With its seed and how often; any other failure reports nothing of kills."""

    def reported(**module: object) -> list[tuple[str, str]]:
        item = SimpleNamespace(nodeid="tests/test_x.py::test_y", module=SimpleNamespace(**module))
        hook = conftest.pytest_runtest_makereport(item)
        next(hook)
        with pytest.raises(StopIteration) as done:
            hook.send(SimpleNamespace(failed=True, sections=[]))
        return list(done.value.value.sections)

    assert reported() == []
    [(_, said)] = reported(killed=killing.killed)
    assert said == f"SOAK_SEED={killing.SEED} SOAK_KILLS={killing.TIMES} pytest -m soak 'tests/test_x.py::test_y'"


def test_every_promise_has_a_test_and_every_bound_its_number() -> None:
    """Rows of the table without a test, and numbers that have changed, are seen."""
    rows = PAGE.split("## Promises")[1].split("## Bounds")[0].count("\n| ") - 1
    assert len(NAMED) == rows > 15
    for field in fields(BOUNDS):
        assert f"`{field.name}`" in PAGE and f"{getattr(BOUNDS, field.name):,}" in PAGE
