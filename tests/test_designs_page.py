"""The page of the designs' sections is made of its file, and what it names is there."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
_SPEC = importlib.util.spec_from_file_location("designs_page", ROOT / "docs/designs.py")
assert _SPEC and _SPEC.loader
designs_page = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(designs_page)
SECTIONS = [(design["design"], one) for design in designs_page.read() for one in design["sections"]]


def test_the_page_is_made_of_its_file() -> None:
    """Run docs/designs.py after a change."""
    assert (ROOT / "docs/designs.md").read_text(encoding="utf-8") == designs_page.page(designs_page.read())


@pytest.mark.parametrize(("design", "one"), SECTIONS, ids=lambda v: v["section"] if isinstance(v, dict) else None)
def test_a_section_says_what_where_and_which_test_breaks_without_it(design: str, one: dict) -> None:
    """Files are there, and tests are functions of theirs."""
    assert set(one) == {"section", "modelled", "where", "left_out", "tests"}
    assert one["tests"] and one["where"] and one["modelled"] and one["left_out"]
    for name in one["where"]:
        assert (ROOT / name).exists(), name
    for name in one["tests"]:
        file, _, function = name.partition("::")
        text = (ROOT / file).read_text(encoding="utf-8")
        assert re.search(rf"^def {function}\(" if function else "^def test_", text, re.MULTILINE), name
