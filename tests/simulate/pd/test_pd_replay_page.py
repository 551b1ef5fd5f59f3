"""``ticdc-lab pd replay --out``: a page that lists each record beside the real PD's answer."""

from __future__ import annotations

import json
import re
from pathlib import Path

from click.testing import CliRunner

from ticdc_lab.cli import main
from ticdc_lab.report.pd_replay import pd_replay_page
from ticdc_lab.simulate.pd.replay import replay

GOLDEN = Path(__file__).parents[2] / "data" / "golden" / "pd" / "scenarios.jsonl"


def text_of(page: str) -> str:
    """What a reader sees below the scripts."""
    return re.sub(r"<[^>]+>", " ", page.split("</head>")[1])


def test_every_record_is_listed_with_both_answers_and_the_reason(tmp_path: Path) -> None:
    """The page has a row a record; a record that was changed is among those that do not agree."""
    lines = GOLDEN.read_text().splitlines()[:40]
    lines[1] = lines[1].replace("true", "false")
    path = tmp_path / "records.jsonl"
    path.write_text("\n".join([*lines, '{"kind": "<tide>"}', "nonsense"]))
    out = tmp_path / "replay.html"
    done = CliRunner().invoke(main, ["pd", "replay", str(path), "--out", str(out)])
    assert done.exit_code == 1 and f"page: {out}" in done.output
    page = out.read_text()
    shown = text_of(page)
    for line in lines[1:]:
        assert json.loads(line)["id"] in shown
    assert "38 of 41 records get the real PD&#x27;s answer; 1 not judged, 1 malformed, 1 with another answer." in shown
    wrong = page.split('id="wrong"')[1].split("</section>")[0]
    assert "should_balance True" in wrong and "should_balance False" in wrong and "disagrees" in wrong
    assert "kind &lt;tide&gt;" in wrong and "<tide>" not in page


def test_the_same_records_give_the_same_bytes(tmp_path: Path) -> None:
    """No clock and no order of sets shows in the page."""
    pages = [pd_replay_page(replay(GOLDEN), "scenarios", tmp_path / f"{i}.html").read_bytes() for i in (1, 2)]
    assert pages[0] == pages[1]
