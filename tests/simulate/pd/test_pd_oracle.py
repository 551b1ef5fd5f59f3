"""Our PD decides what the real PD's code decided for every record of golden/pd/oracle.jsonl."""

from __future__ import annotations

from pathlib import Path

import pytest

from ticdc_lab.simulate.pd.replay import Replayed, replay

GOLDEN = Path(__file__).parents[2] / "data" / "golden" / "pd"


@pytest.fixture(scope="module")
def oracle() -> Replayed:
    """The oracle, judged once."""
    return replay(GOLDEN / "oracle.jsonl.gz")


def test_every_record_gets_the_recorded_answer(oracle: Replayed) -> None:
    """Scores to 1e-9, decisions among those seen; nothing likely that the real PD never did."""
    assert [r for r in oracle.records if r["agrees"] is not True] == []
    assert oracle.total == oracle.agree == 525


def test_our_answer_is_one_of_the_file_in_its_own_form(oracle: Replayed) -> None:
    """`ours` of a decision equals one of the outcomes, except for how often it was seen."""
    decided = [r for r in oracle.records if r["kind"].startswith(("balance", "rule", "replica"))]
    for r in decided:
        assert r["ours"] in [{k: v for k, v in o.items() if k != "times"} for o in r["file"]], r["line"]
    assert len(decided) == 300
