"""A real Prometheus scrapes a watch: the dashboard has its series, and a broken guarantee is an alert that arrives."""

from __future__ import annotations

import gzip
import json
from typing import Any

from conftest import golden
from real_prometheus import alertmanager, asked, program, prometheus, until
from topics import mock_cluster, recorded, send

from ticdc_lab.watch.alerts import ALERTS, rules
from ticdc_lab.watch.comparing import WatchedComparison
from ticdc_lab.watch.dashboard import PANELS, TICDC_LAG
from ticdc_lab.watch.pages import pages
from ticdc_lab.watch.running import Watch

LOG = "messages_canal-json-tidb_small-dup-restart.jsonl.gz"
OTHER = "messages_canal-json-tidb_small.jsonl.gz"
NEED_TICDC = {f"max by (changefeed) ({TICDC_LAG})"}
"""Queries of the dashboard that only TiCDC answers."""


def _faults(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row that was never sent before, below watermarks that have passed, and what cannot be decoded."""
    first = next(m for m in messages if m["partition"] == 0 and b'"INSERT"' in m["value"] and b'"users"' in m["value"])
    late = json.loads(first["value"])
    late["data"][0]["id"] = "999999"
    return [first | {"value": json.dumps(late).encode()}, {"partition": 0, "key": b"?", "value": b"{"}]


def test_a_violation_and_a_difference_reach_alertmanager(tmp_path):
    """With guarantee or kind, and the command; every query of the dashboard has a series, for the ones
    of TiCDC none.
    """
    program("prometheus")
    rule_file = tmp_path / "rules.yml"
    rule_file.write_text(rules())
    queries = [q.replace("$__rate_interval", "10s") for p in PANELS for q, _ in p.queries]
    lines = gzip.decompress(golden(OTHER).read_bytes()).splitlines(keepends=True)
    (tmp_path / "other.jsonl").write_bytes(b"".join(lines[:500] + lines[501:]))
    compared = WatchedComparison(str(golden(OTHER)), str(tmp_path / "other.jsonl"))
    compared.run()
    with (
        mock_cluster() as servers,
        alertmanager(tmp_path / "alertmanager") as alerts_at,
        Watch(f"kafka://{servers}/small", str(tmp_path / "state"), settle_s=0.0) as watch,
        pages(watch, "127.0.0.1:0") as at,
        pages(compared, "127.0.0.1:0") as compared_at,
        prometheus(tmp_path / "prometheus", [at, compared_at], alerts_at, rule_file) as url,
    ):
        messages = recorded(golden(LOG))
        send(servers, "small", messages + _faults(messages))
        missing = set(queries)

        def all_answer() -> bool:
            for query in list(missing - NEED_TICDC):
                if asked(f"{url}/api/v1/query", query=query)["data"]["result"]:
                    missing.discard(query)
            return missing <= NEED_TICDC

        until(all_answer, "a series of each query")

        def fired(name: str) -> list[dict[str, dict[str, str]]]:
            every = asked(f"http://{alerts_at}/api/v2/alerts")
            return [a for a in every if a["labels"]["alertname"] == name]

        found = until(lambda: fired("TiCDCLabViolation"), "the alert")
        broken = {f.guarantee for f in watch.findings.values() if f.severity == "error"}
        assert {a["labels"]["guarantee"] for a in found} <= broken and broken
        assert {a["annotations"]["command"] for a in found} == {ALERTS[0].command}
        differs = until(lambda: fired("TiCDCLabLogsDiffer"), "the alert of the comparison")
        assert {a["labels"]["kind"] for a in differs} == {"only here"}
        listed = asked(f"http://{compared_at}/findings")["findings"]
        assert [f["kind"] for f in listed] == ["only here"]
        assert asked(f"http://{compared_at}/status")["differences"]["only here"] == 1
