"""Alert rules and the dashboard: Prometheus' own tools read them, and each alert fires for what it is about."""

from __future__ import annotations

import json
import re

import pytest
import yaml
from click.testing import CliRunner
from conftest import ROOT
from real_prometheus import promtool

from ticdc_lab.cli import main
from ticdc_lab.watch.alerts import ALERTS, rules
from ticdc_lab.watch.dashboard import PANELS, TICDC_LAG, dashboard
from ticdc_lab.watch.metrics import ComparedView, PartitionView, WatchView, metrics
from ticdc_lab.watch.state import WatchCounts

SEEN = WatchView(
    protocol="canal-json", counts=WatchCounts(messages=7, quarantined={"corrupted": 1}, evicted=2),
    partitions={
        ("t", 0): PartitionView(7, 0, 9, 440_000_000_000_000_000, 1_700_000_000_000, 1, answered_s=1_700_000_000.0)
    },
    pending_ts={"t": 440_000_000_000_000_001}, violations={("row_images_chain", "error"): 1},
    open={("row_images_chain", "error"): 1}, rows=3, nbytes=120, last_batch_s=1_700_000_000.0,
)  # fmt: skip
COMPARED = ComparedView(
    ("canal-json", "open-protocol"), (440_000_000_000_000_000,) * 2, 440_000_000_000_000_000, 7, {"only here": 1},
    {"late": (0, 2), "unread": (1, 0)}, 700, 1_700_000_000.0,
)  # fmt: skip
T = 'topic="t",partition="0"'
CALM = {
    'violations_total{guarantee="g",severity="error"}': "5x40",
    'violations_total{guarantee="g",severity="warning"}': "0+1x40",
    f"unread_lost_messages_total{{{T}}}": "3x40",
    f"last_answer_timestamp_seconds{{{T}}}": "-50+60x40",
    f"resolved_timestamp_seconds{{{T}}}": "-590+60x40",
    f"last_watermark_timestamp_seconds{{{T}}}": "-290+60x40",
    'quarantined_messages_total{reason="r"}': "3x40",
    'redelivery_episodes_total{topic="t"}': "0x30 3x10",
    f"read_offset{{{T}}}": "20x40", f"log_start_offset{{{T}}}": "10x40", f"end_offset{{{T}}}": "110x40",
    'unchecked_row_changes_total{reason="evicted"}': "0+1x40",
    'unchecked_row_changes_total{reason="filtered"}': "0x40",
    'checked_total{guarantee="rows_stay_in_one_partition"}': "0+99x40",  # with the evicted one 100 a minute
    "last_batch_timestamp_seconds": "-290+60x40",
    'compared_differences{kind="only here"}': "3x40",
    'compared_differences{kind="other partition"}': "0+1x40",
    'not_compared_total{reason="late",side="there"}': "3x40",
    'compare_resolved_timestamp_seconds{side="here"}': "-590+60x40",
}  # fmt: skip
"""Just below each limit, by the minute."""

ABOUT_T = {"topic": "t", "partition": "0"}
LOST = "Retention deleted messages of t partition 0 before the watch read them."
NEAR = "The watch reads t partition 0 in the oldest tenth of the log, which retention deletes next."
SILENT = "The watch has taken no message for 5 minutes, or does not answer."
ODD = [
    ("TiCDCLabViolation", {'violations_total{guarantee="g",severity="error"}': "5x35 6x5"},
     {"guarantee": "g"}, "The topic breaks the guarantee g."),
    ("TiCDCLabViolation", {'violations_total{guarantee="g",severity="error"}': "_x35 6x5"},
     {"guarantee": "g"}, "The topic breaks the guarantee g."),
    ("TiCDCLabMessagesLost", {f"unread_lost_messages_total{{{T}}}": "3x35 9x5"}, ABOUT_T, LOST),
    ("TiCDCLabMessagesLost", {f"unread_lost_messages_total{{{T}}}": "_x35 9x5"}, ABOUT_T, LOST),
    ("TiCDCLabPartitionSilent", {f"last_answer_timestamp_seconds{{{T}}}": "2339x40"}, ABOUT_T,
     "The broker of t partition 0 has not answered for 1m 1s, so the partition is not checked."),
    ("TiCDCLabResolvedTsStuck", {f"resolved_timestamp_seconds{{{T}}}": "1799x40"}, ABOUT_T,
     "The resolved_ts of t partition 0 is 10m 1s old."),
    ("TiCDCLabWatermarkOverdue", {f"last_watermark_timestamp_seconds{{{T}}}": "2099x40"}, ABOUT_T,
     "The last watermark of t partition 0 was written 5m 1s ago."),
    ("TiCDCLabQuarantine", {'quarantined_messages_total{reason="r"}': "_x35 1x5"}, {"reason": "r"},
     "Messages cannot be decoded: r."),
    ("TiCDCLabRedeliveries", {'redelivery_episodes_total{topic="t"}': "0+1x5 5x35"}, {"topic": "t"}, None),
    ("TiCDCLabRetentionNear", {f"read_offset{{{T}}}": "19x40"}, ABOUT_T, NEAR),
    ("TiCDCLabUnchecked", {'unchecked_row_changes_total{reason="filtered"}': "0+2x40"}, {"reason": "filtered"},
     "2% of the row changes are not checked by all guarantees: filtered."),
    ("TiCDCLabUnchecked", {'unchecked_row_changes_total{reason="evicted"}': "0+2x40"}, {"reason": "evicted"},
     "1.98% of the row changes are not checked by all guarantees: evicted."),
    ("TiCDCLabLogsDiffer", {'compared_differences{kind="only here"}': "3x35 4x5"}, {"kind": "only here"},
     "Two logs that are compared differ: only here."),
    ("TiCDCLabLogsDiffer", {'compared_differences{kind="ddl"}': "_x35 1x5"}, {"kind": "ddl"},
     "Two logs that are compared differ: ddl."),
    ("TiCDCLabNotCompared", {'not_compared_total{reason="late",side="there"}': "3x35 4x5"},
     {"reason": "late", "side": "there"}, "Row changes or messages of one log are not compared: late there."),
    ("TiCDCLabComparisonBehind", {'compare_resolved_timestamp_seconds{side="here"}': "1799x40"}, {"side": "here"},
     "The resolved_ts here is 10m 1s old; nothing newer is compared."),
    ("TiCDCLabWatchSilent", {"last_batch_timestamp_seconds": "2039x40"}, {}, SILENT),
    ("TiCDCLabWatchSilent", {"last_batch_timestamp_seconds": "0x20 stale _x20"}, {}, SILENT),
    ("TiCDCLabWatchSilent", {"last_batch_timestamp_seconds": "_x40"}, {}, SILENT),
    ("TiCDCLabWatchSilent", {'last_batch_timestamp_seconds{instance="b"}': "-290+60x20 stale _x19"}, {"instance": "b"},
     SILENT),
]  # fmt: skip
"""An alert, the series that must raise it, the labels and the summary that it then has."""


def _case(changed: dict[str, str], fires: dict[str, list[dict[str, object]]]) -> dict[str, object]:
    series = [{"series": f"ticdc_lab_{name}", "values": values} for name, values in {**CALM, **changed}.items()]
    expected = [{"eval_time": "40m", "alertname": a.name, "exp_alerts": fires.get(a.name, [])} for a in ALERTS]
    return {"interval": "1m", "input_series": series, "alert_rule_test": expected}


def test_each_alert_fires_for_its_violation_alone(tmp_path):
    """Just below the limits nothing fires; beyond one of them that alert does, and no other."""
    assert {name for name, *_ in ODD} == {a.name for a in ALERTS}
    by_name, cases = {a.name: a for a in ALERTS}, [_case({}, {})]
    for name, changed, labels, summary in ODD:
        alert = by_name[name]
        says = {"summary": summary or "Row changes of t were delivered again 5 times in an hour.",
                "command": alert.command}  # fmt: skip
        fired = {"exp_labels": {"severity": alert.severity, **labels}, "exp_annotations": says}
        cases.append(_case(changed, {name: [fired]}))
    (tmp_path / "rules.yml").write_text(rules())
    file = tmp_path / "tests.yml"
    file.write_text(yaml.safe_dump({"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": cases}))
    done = promtool("test", "rules", file)
    assert done.returncode == 0, (done.stdout + done.stderr).decode()


def test_prometheus_reads_the_rules_and_the_page(tmp_path):
    """Without a word of criticism; a page that it does not read is refused, so that it does look."""
    file = tmp_path / "rules.yml"
    done = CliRunner().invoke(main, ["watch", "rules", "--out", str(file)])
    assert done.exit_code == 0 and f"{len(ALERTS)} alerts" in done.output
    assert promtool("check", "rules", file).returncode == 0
    for view in (WatchView(), SEEN, ComparedView(("", "")), COMPARED):
        checked = promtool("check", "metrics", page=metrics(view))
        assert (checked.returncode, checked.stdout + checked.stderr) == (0, b"")
    assert promtool("check", "metrics", page=b"# TYPE a_total counter\na_total x\n").returncode != 0


def test_each_alert_has_its_row_in_the_page():
    """With its severity; and no other alert is there."""
    page = (ROOT / "docs/watch.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(TiCDCLab\w+)` \| (\w+) \|", page, re.MULTILINE)
    assert rows == [(a.name, a.severity) for a in ALERTS]


def _named(text: str) -> set[str]:
    return set(re.findall(r"\b(?:ticdc_lab_|ticdc_owner_)\w+", text))


@pytest.mark.parametrize("text", [" ".join(a.expr for a in ALERTS), " ".join(q for p in PANELS for q, _ in p.queries)])
def test_only_metrics_that_exist_are_asked_for(text):
    """Each is on the page of a watch; one is TiCDC's own."""
    pages = metrics(SEEN) + metrics(COMPARED)
    exported = {line.split("{")[0].split(" ")[0] for line in pages.decode().splitlines() if line[0] != "#"}
    assert _named(text) - exported <= {TICDC_LAG} and len(_named(text)) > 8


def test_the_dashboard_is_one_that_grafana_imports(tmp_path):
    """Panels have places of their own and a data source that is asked for; one shows TiCDC's lag beside ours."""
    file = tmp_path / "dashboard.json"
    assert CliRunner().invoke(main, ["watch", "dashboard", "--out", str(file)]).exit_code == 0
    assert file.read_text() == dashboard()
    board = json.loads(dashboard())
    taken = [
        (x, y) for p in board["panels"] for at in [p["gridPos"]]
        for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])
    ]  # fmt: skip
    assert len(taken) == len({*taken}) and max(x for x, _ in taken) == 23
    assert len({p["id"] for p in board["panels"]}) == len(PANELS)
    assert board["templating"]["list"][0]["type"] == "datasource"
    beside = [p for p in PANELS if any(TICDC_LAG in q for q, _ in p.queries)]
    assert len(beside) == 1 and any("ticdc_lab_resolved_timestamp_seconds" in q for q, _ in beside[0].queries)
