"""Alert rules for Prometheus over the metrics of a watch: what is urgent, what is odd, and the command to run next."""

from __future__ import annotations

from typing import NamedTuple

import yaml


def _new(metric: str, selector: str = "") -> str:
    """Whether a counter rose in ten minutes; one that begins above zero has risen, for ``increase`` it has not."""
    series = f"ticdc_lab_{metric}{selector}"
    return f"increase({series}[10m]) > 0 or ({series} > 0 unless {series} offset 10m)"


class Alert(NamedTuple):
    """An alert: critical ones need action now. ``for_`` is how long ``expr`` must be true."""

    name: str
    severity: str
    expr: str
    summary: str
    command: str
    for_: str = "0m"


UNCHECKED_SHARE = (
    "increase(ticdc_lab_unchecked_row_changes_total[10m]) / ignoring (reason) group_left ()"
    " (sum without (reason) ("
    'increase(ticdc_lab_unchecked_row_changes_total{reason=~"evicted|quarantined"}[10m]))'
    " + ignoring (guarantee) group_left ()"
    ' increase(ticdc_lab_checked_total{guarantee="rows_stay_in_one_partition"}[10m]))'
)
"""Of the row changes of ten minutes the share that not all guarantees judged, by reason; of these only evicted and
quarantined ones are not asked of their place, as all others are.
"""

HEADROOM = "(ticdc_lab_read_offset - ticdc_lab_log_start_offset) / (ticdc_lab_end_offset - ticdc_lab_log_start_offset)"
"""How far from the first message that the broker has the watch reads: 1 at the end of the log."""

_DIFFER = 'ticdc_lab_compared_differences{kind!="other partition"}'
_BATCH = "ticdc_lab_last_batch_timestamp_seconds"
_FINDINGS = "ticdc-lab watch findings --state DIR"
_STATUS = "ticdc-lab watch status --state DIR"
_WHY = "ticdc-lab why kafka://BROKER/TOPIC"

ALERTS = (
    Alert(
        "TiCDCLabViolation", "critical", _new("violations_total", '{severity="error"}'),
        "The topic breaks the guarantee {{ $labels.guarantee }}.", _FINDINGS,
    ),
    Alert(
        "TiCDCLabMessagesLost", "critical", _new("unread_lost_messages_total"),
        "Retention deleted messages of {{ $labels.topic }} partition {{ $labels.partition }}"
        " before the watch read them.",
        _STATUS,
    ),
    Alert(
        "TiCDCLabPartitionSilent", "critical", "time() - ticdc_lab_last_answer_timestamp_seconds > 60",
        "The broker of {{ $labels.topic }} partition {{ $labels.partition }} has not answered for"
        " {{ $value | humanizeDuration }}, so the partition is not checked.", _STATUS,
    ),
    Alert(
        "TiCDCLabResolvedTsStuck", "critical", "time() - ticdc_lab_resolved_timestamp_seconds > 600",
        "The resolved_ts of {{ $labels.topic }} partition {{ $labels.partition }} is"
        " {{ $value | humanizeDuration }} old.", _WHY,
    ),
    Alert(
        "TiCDCLabWatermarkOverdue", "warning", "time() - ticdc_lab_last_watermark_timestamp_seconds > 300",
        "The last watermark of {{ $labels.topic }} partition {{ $labels.partition }} was written"
        " {{ $value | humanizeDuration }} ago.", _WHY,
    ),
    Alert(
        "TiCDCLabQuarantine", "warning", _new("quarantined_messages_total"),
        "Messages cannot be decoded: {{ $labels.reason }}.", "ticdc-lab survey kafka://BROKER/TOPIC",
    ),
    Alert(
        "TiCDCLabRedeliveries", "warning", "increase(ticdc_lab_redelivery_episodes_total[1h]) > 3",
        'Row changes of {{ $labels.topic }} were delivered again {{ $value | printf "%.0f" }} times in an hour.', _WHY,
    ),
    Alert(
        "TiCDCLabRetentionNear", "warning", f"{HEADROOM} < 0.1",
        "The watch reads {{ $labels.topic }} partition {{ $labels.partition }} in the oldest tenth of the log,"
        " which retention deletes next.", _STATUS, "5m",
    ),
    Alert(
        "TiCDCLabUnchecked", "warning", f"{UNCHECKED_SHARE} > 0.01",
        "{{ $value | humanizePercentage }} of the row changes are not checked by all guarantees:"
        " {{ $labels.reason }}.", _STATUS,
    ),
    Alert(
        "TiCDCLabWatchSilent", "warning",
        f"time() - {_BATCH} > 300 or absent({_BATCH}) or (last_over_time({_BATCH}[1h]) unless {_BATCH})",
        "The watch has taken no message for 5 minutes, or does not answer.", _STATUS, "1m",
    ),
    Alert(
        "TiCDCLabLogsDiffer", "critical",
        f"delta({_DIFFER}[10m]) > 0 or ({_DIFFER} > 0 unless {_DIFFER} offset 10m)",
        "Two logs that are compared differ: {{ $labels.kind }}.", "ticdc-lab compare A B --watch --once --state DIR",
    ),
    Alert(
        "TiCDCLabNotCompared", "warning", _new("not_compared_total"),
        "Row changes or messages of one log are not compared: {{ $labels.reason }} {{ $labels.side }}.",
        "ticdc-lab compare A B --watch --once --state DIR",
    ),
    Alert(
        "TiCDCLabComparisonBehind", "warning", "time() - ticdc_lab_compare_resolved_timestamp_seconds > 600",
        "The resolved_ts {{ $labels.side }} is {{ $value | humanizeDuration }} old; nothing newer is compared.", _WHY,
    ),
)  # fmt: skip
"""In the order of the page docs/watch.md."""


def rules() -> str:
    """The rule file for Prometheus (``rule_files``), as YAML."""
    said = [
        {
            "alert": a.name, "expr": a.expr, "for": a.for_, "labels": {"severity": a.severity},
            "annotations": {"summary": a.summary, "command": a.command},
        }
        for a in ALERTS
    ]  # fmt: skip
    return yaml.safe_dump({"groups": [{"name": "ticdc-lab-watch", "rules": said}]}, sort_keys=False, width=1_000)
