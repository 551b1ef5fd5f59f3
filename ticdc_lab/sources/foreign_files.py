"""Files without a message that can be restored: what each is, by a mark in its first bytes, and what to do."""

from __future__ import annotations

import re
from collections.abc import Sequence

_RECORD = "ticdc-lab record kafka://HOST:PORT/TOPIC --out topic.jsonl.gz"
RECORD = f"Record the topic: {_RECORD}"
_NAMED: Sequence[tuple[str, str]] = (
    (
        r"(?m)^[^{\n]{0,200}\[\d{4}/\d\d/\d\d [\d:.]+ [+-]\d\d:\d\d\] \[[A-Z]+\] \[[\w.-]+\.rs:",
        f"It is a log of TiKV, which contains no change. {RECORD}",
    ),
    (
        r"(?m)^[^{\n]{0,200}\[\d{4}/\d\d/\d\d \d\d:\d\d:\d\d[.\d]* [+-]\d\d:\d\d\] \[[A-Z]+\] \[",
        "It is TiCDC's own log, or one of PD or TiDB, which have its form. To read TiCDC's beside a topic: "
        "ticdc-lab why kafka://HOST:PORT/TOPIC --cdc-log {file}",
    ),
    (
        r"(?m)\A# (?:HELP|TYPE|UNIT) [A-Za-z_:]|^[A-Za-z_:][\w:]*\{[^}\n]*\} (?:=>|[-+\d.eEInfNa]+(?: \d+)?(?: # .*)?$)"
        r'|^\{__name__="|"resultType": ?"(?:matrix|vector|scalar)"|"frames": ?\[ ?\{ ?"schema"|\A"?Time"?,',
        f"It resembles metrics of Prometheus or Grafana, which contain no change and which no command reads. {RECORD}",
    ),
    (
        r"<[\w.]*Message object at 0x|\[B@[0-9a-f]{5,}",
        "A program printed where messages lie in memory, not what they contain. Print topic(), partition(), offset(), "
        f"key() and value(). Or record the topic: {_RECORD}",
    ),
    (
        r"(?m)(?:^|[=:>\]] ?)(?:\{\w+=[^{}\n]*, ?\w+=|map\[\w+:[^\n]*\b\w+:|\{ \w+: [^\n]*, \w+: )|^\{\n +\w+: ",
        "A program printed an object of its own (a Map of Java, a map of Go, an object of JavaScript), without the "
        f"quotes of JSON, so values cannot be restored. Print the text of the value. Or record the topic: "
        f"{_RECORD}",
    ),
    (
        r"(?m)^(?:[\w:]+> )?[+-][IUD]\[|^\| [+-][IUD] \|",
        f"It resembles rows that Flink decoded, which have no commit_ts and no place in a topic. {RECORD}",
    ),
    (
        r"(?m)^### (?:INSERT INTO|UPDATE|DELETE FROM) `|^/\*!\*/;",
        f"It resembles what mysqlbinlog prints, which TiCDC does not write. {RECORD}",
    ),
    (
        r'\A"?[IUD]"?,"?[^,"\n{]+"?,"?[^,"\n{]+"?,[^\n]',
        "It resembles a data file of TiCDC's storage sink, which does not name its columns. Give the folder that has "
        "`metadata`, with meta/schema_*.json of the table: ticdc-lab survey FOLDER",
    ),
    (
        r"\A[^{]*(?:CDC\d{6,}\.(?:csv|json)|meta/schema_\d+_\d+\.json)[^{]*\Z",
        "It lists files of TiCDC's storage sink. Copy the folder with `metadata`, and: ticdc-lab survey FOLDER",
    ),
    (
        r'(?m)^\{.*"_tidb_(?:op|commit_ts)"\s*:',
        "It resembles rows of avro that a consumer decoded with the schema registry, without their keys. Read the "
        "bytes: ticdc-lab survey kafka://HOST:PORT/TOPIC --schema-registry URL",
    ),
    (
        r'(?m)^\{.*"connector"\s*:\s*"(?!TiCDC)(\w+)"',
        "Debezium's connector for {0} wrote it. It has no commit_ts: only debezium of TiCDC is read.",
    ),
    (
        r'(?m)^\{"[upd]":\{"[^"]*":\{"t":\d|\{\\?"ts\\?": ?\d{17,19}, ?(?:\\?"scm\\?"|\\?"t\\?": ?3)',
        "It resembles values of open-protocol without their keys, or both as text without their lengths. Read the "
        f"bytes: {_RECORD}",
    ),
    (
        r'(?m)^[\[{].*"(?:sink[_-]uri|checkpoint[_-]tso?|task[_-]status|is[_-]owner|resolved[_-]ts|summary|kvs)"\s*:'
        r'|^\s*"(?:sink[_-]uri|checkpoint[_-]tso?)"\s*:|^(?:Create changefeed successfully|Diff of changefeed config)'
        r"|^\[{1,2}(?:sink|filter|mounter|scheduler|consistent)[\w.-]*\]{1,2}\s*$|^/tidb/cdc/",
        "It resembles a changefeed, or what `cdc cli` or etcdctl prints of one, which contains no message. Give it "
        "beside a topic: ticdc-lab settings kafka://HOST:PORT/TOPIC --changefeed {file}",
    ),
    (
        r'"(?:state_name|region_score|conf_ver|approximate_size|start_key_hex|group_id|schedulers-v2)"\s*:',
        "It resembles what pd-ctl prints, which contains no message. Give all that it printed: ticdc-lab pd explain "
        "--from {file}",
    ),
)
"""Marks of what contains no message that can be restored, and the sentence: what it is, and what to do."""


def named_file(file: str, head: bytes) -> str:
    """What contains no message, or none that can be restored, by its mark."""
    text = head.decode("latin-1")
    for mark, said in _NAMED:
        if found := re.search(mark, text):
            return said.replace("{file}", file).replace("{0}", (found.groups() or ("",))[0])
    return ""
