"""A Grafana dashboard over the metrics of a watch: first whether it is clean, then how late, then what it costs."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from ticdc_lab.watch.alerts import HEADROOM, UNCHECKED_SHARE

TICDC_LAG = "ticdc_owner_checkpoint_ts_lag"
"""The one metric here that TiCDC exports, not the watch."""

_RATE = "[$__rate_interval]"


class Chart(NamedTuple):
    """A panel of the dashboard: PromQL and the legend of each of its series."""

    title: str
    what: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    kind: str = "timeseries"


PANELS = (
    Chart("Open findings", "0 is clean, if row changes are checked.", "short",
          (("sum by (severity) (ticdc_lab_open_findings)", "{{severity}}"),), "stat"),
    Chart("Messages not read yet", "How far the watch is behind the end of the log.", "short",
          (("sum(ticdc_lab_end_offset - ticdc_lab_read_offset)", "messages"),), "stat"),
    Chart("Lost before they were read", "Messages that retention deleted: their faults are never found.", "short",
          (("sum(ticdc_lab_unread_lost_messages_total)", "messages"),), "stat"),
    Chart("Watches", "Version and protocol.", "short",
          (("ticdc_lab_build_info", "{{instance}} {{version}} {{protocol}}"),), "stat"),
    Chart("Violations", "New findings in 10 minutes, by guarantee.", "short",
          (("increase(ticdc_lab_violations_total[10m])", "{{guarantee}} {{severity}}"),)),
    Chart("Checks", "Events judged by a guarantee. Zero violations of zero checks is not clean.", "ops",
          ((f"rate(ticdc_lab_checked_total{_RATE})", "{{guarantee}}"),)),
    Chart("Lag: topic beside TiCDC's checkpoint",
          "If both rise, the changefeed is late. If only the topic's rises, look at the sink, the broker, and whether"
          " the watch is behind.", "s",
          (("max by (topic) (time() - ticdc_lab_resolved_timestamp_seconds)", "{{topic}} resolved_ts in the topic"),
           (f"max by (changefeed) ({TICDC_LAG})", "{{changefeed}} checkpoint_ts of TiCDC"))),
    Chart("Age of watermarks", "Since each partition's last watermark was written.", "s",
          (("time() - ticdc_lab_last_watermark_timestamp_seconds", "{{topic}} {{partition}}"),)),
    Chart("Oldest pending transaction", "Age of the oldest commit_ts above the resolved_ts; blank: none.", "s",
          (("time() - ticdc_lab_oldest_pending_transaction_timestamp_seconds", "{{topic}}"),)),
    Chart("Messages", "Read a second.", "ops", ((f"rate(ticdc_lab_messages_total{_RATE})", "{{instance}}"),)),
    Chart("Distance from retention", "1 at the end of the log, 0 at the message that retention deletes next.",
          "percentunit", ((HEADROOM, "{{topic}} {{partition}}"),)),
    Chart("Row changes not checked", "Share of 10 minutes, by reason.", "percentunit",
          ((UNCHECKED_SHARE, "{{reason}}"),)),
    Chart("Redeliveries", "Row changes delivered again, and how often that began, in an hour.", "short",
          (("increase(ticdc_lab_redelivered_row_changes_total[1h])", "{{topic}} row changes"),
           ("increase(ticdc_lab_redelivery_episodes_total[1h])", "{{topic}} episodes"))),
    Chart("Quarantine", "Messages that cannot be decoded, since the watch began.", "short",
          (("ticdc_lab_quarantined_messages_total", "{{reason}}"),)),
    Chart("Time of a batch", "99th percentile, and since the last batch.", "s",
          ((f"histogram_quantile(0.99, sum by (le) (rate(ticdc_lab_batch_duration_seconds_bucket{_RATE})))", "p99"),
           ("time() - ticdc_lab_last_batch_timestamp_seconds", "{{instance}} since the last batch"))),
    Chart("Rows remembered", "Evicted rows make their next change unchecked.", "short",
          (("ticdc_lab_state_rows", "{{instance}} rows"),
           ("ticdc_lab_state_evicted_rows_total", "{{instance}} evicted"))),
    Chart("Memory of the state", "Bounded by --memory.", "bytes", (("ticdc_lab_state_bytes", "{{instance}}"),)),
    Chart("Comparison: differences", "Of compare --watch. Another partition is no difference of content.", "short",
          (("ticdc_lab_compared_differences", "{{instance}} {{kind}}"),
           ("sum by (instance, reason) (ticdc_lab_not_compared_total)", "{{instance}} not compared: {{reason}}"))),
    Chart("Comparison: lag of both logs", "Row changes are compared up to the older resolved_ts.", "s",
          (("time() - ticdc_lab_compare_resolved_timestamp_seconds", "{{instance}} {{side}}"),
           ("time() - ticdc_lab_compared_until_timestamp_seconds", "{{instance}} compared"))),
    Chart("Comparison: row changes", "Zero differences of zero row changes is not equal.", "short",
          (("ticdc_lab_compared_row_changes", "{{instance}}"),)),
)  # fmt: skip

_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_STATS, _COLUMNS, _HEIGHT = 4, 24, 8


def dashboard() -> str:
    """The dashboard as JSON, for Grafana's import; it asks which Prometheus to read."""
    choice = {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    told = {
        "uid": "ticdc-lab-watch", "title": "TiCDC topics: the audit that runs all day", "tags": ["ticdc", "ticdc-lab"],
        "schemaVersion": 38, "editable": True, "refresh": "10s", "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [choice]}, "panels": [_drawn(i, panel) for i, panel in enumerate(PANELS)],
    }  # fmt: skip
    return json.dumps(told, indent=2) + "\n"


def _drawn(i: int, panel: Chart) -> dict[str, Any]:
    """A panel in Grafana's words; four stats in the first row, two pictures in each other."""
    if panel.kind == "stat":
        at = {"x": i * _COLUMNS // _STATS, "y": 0, "w": _COLUMNS // _STATS, "h": _HEIGHT // 2}
    else:
        row, column = divmod(i - _STATS, 2)
        at = {"x": column * _COLUMNS // 2, "y": _HEIGHT // 2 + row * _HEIGHT, "w": _COLUMNS // 2, "h": _HEIGHT}
    return {
        "id": i + 1, "type": panel.kind, "title": panel.title, "description": panel.what, "datasource": _SOURCE,
        "gridPos": at, "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "targets": [
            {"refId": "AB"[n], "datasource": _SOURCE, "expr": query, "legendFormat": legend}
            for n, (query, legend) in enumerate(panel.queries)
        ],
    }  # fmt: skip
