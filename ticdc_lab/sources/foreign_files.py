"""Files without a message that can be restored: what each is, by a mark in its first bytes, and what to do."""

from __future__ import annotations

import re
from collections.abc import Sequence

RECORDING = "ticdc-lab record kafka://HOST:PORT/TOPIC --out topic.jsonl.gz"
RECORD = f"Record the topic: {RECORDING}"
FOLDER = "Give the folder that has `metadata`: ticdc-lab survey FOLDER"
_NAMED: Sequence[tuple[str, str]] = (
    (
        r"\A(?:\x89PNG|\xff\xd8\xff|GIF8|%PDF-|PK\x03\x04(?s:.{0,2000})(?:\[Content_Types\]|(?:xl|word)/))",
        f"It is a picture or a document, not text. Save what it shows as text or CSV. {RECORD}",
    ),
    (
        r"\A(?:SQLite format 3\0|.{8}DUCK|\xd4\xc3\xb2\xa1|\x4d\x3c\xb2\xa1|\x0a\x0d\x0d\x0a|ORC)|\A(?s:.{257})ustar",
        f"It is a database, a capture of packets, an ORC file or a tar, not a dump. Export it as JSON Lines. {RECORD}",
    ),
    (
        r'"(?:TableColumns|TableVersion|ColumnName)"\s*:|\A\s*\{\s*"checkpoint-ts"\s*:\s*\d+\s*\}\s*\Z',
        f"It is a schema file or the metadata of TiCDC's storage sink, which contains no change. {FOLDER}",
    ),
    (
        r"(?m)^\W*(?:check-thread-count|\[data-sources[.\]])|^A total of \d+ tables? need to be compared"
        r"|^(?:The|Comparing the) (?:table structure|data) of `|^The rest of the tables? are equal",
        "It is sync-diff-inspector's configuration or report, which contains no message. To compare what two topics or "
        "consumers' databases have: ticdc-lab compare SOURCE OTHER",
    ),
    (
        r"\bprimary_ts\b",
        "It resembles rows of tidb_cdc.syncpoint_v1. A primary_ts is a TSO of upstream; its time: ticdc-lab tso "
        "PRIMARY_TS",
    ),
    (
        r"(?m)\AGROUP +TOPIC +PARTITION|^Consumer group '.*' has|\A[\w.-]+:\d+:\d+$"
        r"|^\s*Topic: \S+\s+(?:TopicId|PartitionCount|Partition): ?"
        r'|^Metadata for (?:all topics|\S+) \(from broker|"connector\.class"\s*:'
        r"|^\[\d{4}-\d\d-\d\d [\d:,]+\] (?:INFO|WARN|ERROR|DEBUG|TRACE) \[",
        f"It resembles what Kafka's tools print of topics, groups or connectors, or a broker's log. {RECORD}",
    ),
    (
        r'(?m)^\s*(?:Error: )?\[CDC:Err\w+\]|\A\s*\{\s*"error_(?:msg|code)"\s*:',
        f"It is an error of TiCDC, which contains no message. {RECORD}",
    ),
    (
        r'(?m)"(?:is[-_]owner|liveness|table[-_]ids|capture[-_]id|etcd_leader|client_urls|service_gc_safe_points)"\s*:'
        r'|"(?:min_resolved_ts|region_local_state|sink_checkpoint_ts)"\s*:|^ID +Role +Host +Ports',
        "It resembles what `cdc cli` prints of captures or processors, or pd-ctl, tikv-ctl or `tiup cluster display` "
        f"of members and safe points. It contains no message. {RECORD}",
    ),
    (
        r'\A\s*\{(?=[^{}]*"type"\s*:\s*"record")[^{}]*"fields"\s*:\s*\[|\A\s*\{\s*"(?:subject|schema)"\s*:.*\\"record\\"',
        "It is a schema of Avro, which contains no message. Read the topic with its registry: ticdc-lab survey "
        "kafka://HOST:PORT/TOPIC --schema-registry URL",
    ),
    (
        r"\A(?:\s*--.*\n|\s*/\*.*\n|\s*\n)*\s*(?:(?:INSERT|REPLACE) INTO|UPDATE|DELETE FROM|CREATE (?:TABLE|DATABASE)"
        r"|(?:DROP|ALTER|LOCK) TABLES?|USE|BEGIN|SET) ?[ `;\w]",
        "It is SQL, as mysqldump, sync-diff-inspector or a client writes it, which contains no message. Export a table "
        f"that has messages with: mysql --batch -e 'SELECT ..' > dump.tsv. {RECORD}",
    ),
    (
        r'(?m)^\s*"@?\w+" => |\{"\w+"=>',
        "It resembles a Hash of Ruby, as Logstash (rubydebug) or Fluent Bit prints it. Print JSON instead: Logstash "
        f"with codec => json_lines, Fluent Bit with format json_lines. {RECORD}",
    ),
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
        f"key() and value(). Or record the topic: {RECORDING}",
    ),
    (
        r'(?m)^(?!.*\{")(?:.*[=:>\]] ?)?(?:\{\w+=[^{}\n]*, ?\w+=|map\[\w+:[^\n]*\b\w+:|\{ \w+: [^\n]*, \w+: )'
        r"|^\{\n +\w+: ",
        "A program printed an object of its own (a Map of Java, a map of Go, an object of JavaScript), without the "
        f"quotes of JSON, so values cannot be restored. Print the text of the value. Or record the topic: "
        f"{RECORDING}",
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
        r'\A"?(?:[IUD]"?,"?[^,"\n{]+"?,"?[^,"\n{]+"?,[^\n]|ticdc-meta\$)',
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
        f"bytes: {RECORDING}",
    ),
    (
        r'(?m)^[\[{].*"(?:sink[_-]uri|checkpoint[_-]tso?|task[_-]status|resolved[_-]ts|summary|kvs)"\s*:'
        r'|^\s*"(?:sink[_-]uri|checkpoint[_-]tso?)"\s*:|^\s*"summary"\s*:\s*\{|^\w+: \{"(?:sink|upstream)[_-]\w+"\s*:'
        r"|--sink-uri\b|^\W*(?:\S*[/ ])?cdc(?::\S+)? cli |/api/v[12]/changefeeds"
        r"|^\s*(?:Create changefeed successfully|Diff of changefeed config)"
        r"|^\s*(?:enable-sync-point|bdr-mode|force-replicate|case-sensitive|enable-old-value|memory-quota) *="
        r"|^\s*\[{1,2}(?:sink|filter|mounter|scheduler|consistent|integrity)[\w.-]*\]{1,2}\s*$|^/tidb/cdc/",
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
