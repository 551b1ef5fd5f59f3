"""Every v4 case of the golden file is driven by a test that bears its id."""

from __future__ import annotations

import json
import re
from pathlib import Path

HERE = Path(__file__).parent
CASES = HERE.parents[2] / "data" / "golden" / "scheduler" / "v4.jsonl"


def test_every_golden_case_has_a_test_of_its_id() -> None:
    """And no test bears the id of a case that does not exist."""
    cases = {json.loads(line)["id"] for line in CASES.read_text().splitlines()}
    texts = [path.read_text() for path in sorted(HERE.glob("test_v4_*.py"))]
    driven = {f"v4-{number}" for text in texts for number in re.findall(r"def test_v4_(\d\d)_", text)}
    assert len(cases) == 15 and driven == cases
