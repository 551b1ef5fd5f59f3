"""Every key of a changefeed file, and what it has to do with a log: read, no bearing, or refused.

Read at pingcap/ticdc of 2026-08-18: ``pkg/config`` (``replica_config.go``, ``sink.go``, ``filter.go``, ``mounter.go``,
``scheduler_config.go``, ``large_message.go``, ``consistent.go``), ``pkg/integrity``, ``api/v2/model.go``,
``pkg/sink/codec/common/config.go``; and at every release of pingcap/tiflow and pingcap/ticdc since v4.0.0, for the keys
that are gone.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

Kind = Literal["bool", "int", "number", "text", "texts", "ints", "tables", "duration", "any"]


@dataclass(frozen=True, slots=True)
class Key:
    """One key."""

    # What TiCDC takes: a truth value, a whole number, a number, a text, a list, a list of tables, or a duration;
    # ``any`` where its TOML and its JSON differ.
    kind: Kind
    # ``read``: an answer depends on it. ``none``: no message depends on it. ``refused``: a file that sets it to more
    # than false, zero or an empty list cannot be used here; ``depends`` is the reason.
    bearing: Literal["read", "none", "refused"]
    depends: str  # of a key that is read: what depends on it. Of another one: why nothing does, or why it is refused.
    give: str = ""  # what to give if the value is wrong


FROM_URI: Mapping[str, str] = {
    "protocol": "sink.protocol",
    "partition-num": "sink.kafka-config.partition-num",
    "max-message-bytes": "sink.kafka-config.max-message-bytes",
    "compression": "sink.kafka-config.compression",
    "enable-tidb-extension": "sink.kafka-config.codec-config.enable-tidb-extension",
    "max-batch-size": "sink.kafka-config.codec-config.max-batch-size",
    "avro-decimal-handling-mode": "sink.kafka-config.codec-config.avro-decimal-handling-mode",
    "avro-bigint-unsigned-handling-mode": "sink.kafka-config.codec-config.avro-bigint-unsigned-handling-mode",
    "avro-enable-watermark": "sink.kafka-config.codec-config.avro-enable-watermark",
    "avro-include-before-value": "sink.kafka-config.codec-config.avro-include-before-value",
    "encoding-format": "sink.kafka-config.codec-config.encoding-format",
    "output-row-key": "sink.kafka-config.codec-config.output-row-key",
    "schema-registry": "sink.schema-registry",
    "only-output-updated-columns": "sink.only-output-updated-columns",
    "content-compatible": "sink.content-compatible",
    "debezium-disable-schema": "sink.debezium-disable-schema",
    "debezium-include-start-ts": "sink.debezium.include-start-ts",
    "terminator": "sink.terminator",
    "date-separator": "sink.date-separator",
    "file-index-digit": "sink.file-index-digit",
    "enable-partition-separator": "sink.enable-partition-separator",
    "use-table-id-as-path": "sink.cloud-storage-config.use-table-id-as-path",
    "output-column-id": "sink.cloud-storage-config.output-column-id",
    "output-raw-change-event": "sink.kafka-config.output-raw-change-event",
}
"""Parameters of a sink-uri that are read, and the key that each sets. The sink-uri wins."""

_CSV = "how csv records are cut and read"
_PLACE = "topic and partition of each row"
_ABSENT = "which changes are absent on purpose"
_IMAGES = "whether an image before the change is there, and what `audit` can judge"
_TYPES = "values of the rows"
_LARGE = "rows whose content is not in their message"


def _give(name: str, value: str) -> str:
    if name == "sink.protocol":
        return f"--protocol {value}"
    short = next((s for s, full in FROM_URI.items() if full == name), name.removeprefix("sink."))
    return f"--option {short}={shlex.quote(value)}"


_READ: Mapping[str, tuple[Kind, str, str]] = {
    "case-sensitive": ("bool", "which tables the matchers of all rules take", "true"),
    "enable-old-value": ("bool", f"{_IMAGES}; the default dispatcher", "false"),
    "force-replicate": ("bool", "whether tables without a key are there", "true"),
    "bdr-mode": ("bool", _ABSENT, "true"),
    "filter.rules": ("texts", "which tables are absent on purpose", ""),
    "filter.ignore-txn-start-ts": ("ints", _ABSENT, ""),
    "filter.event-filters": ("tables", _ABSENT, ""),
    "filter.event-filters.matcher": ("texts", _ABSENT, ""),
    "filter.event-filters.ignore-event": ("texts", _ABSENT, ""),
    "filter.event-filters.ignore-sql": ("texts", "which DDL are absent on purpose", ""),
    "filter.event-filters.ignore-insert-value-expr": ("text", _ABSENT, ""),
    "filter.event-filters.ignore-update-new-value-expr": ("text", _ABSENT, ""),
    "filter.event-filters.ignore-update-old-value-expr": ("text", _ABSENT, ""),
    "filter.event-filters.ignore-delete-value-expr": ("text", _ABSENT, ""),
    "filter.event-filters.ignore-update-only-columns": ("texts", _ABSENT, ""),
    "integrity.integrity-check-level": ("text", "whether rows carry checksums", "correctness"),
    "integrity.corruption-handle-level": ("text", "whether rows with a wrong checksum are sent", "warn"),
    "sink.protocol": ("text", "how every message is decoded", "PROTOCOL"),
    "sink.dispatchers": ("tables", _PLACE, ""),
    "sink.dispatchers.matcher": ("texts", _PLACE, ""),
    "sink.dispatchers.dispatcher": ("text", _PLACE, ""),
    "sink.dispatchers.partition": ("text", _PLACE, ""),
    "sink.dispatchers.index": ("text", _PLACE, ""),
    "sink.dispatchers.columns": ("texts", _PLACE, ""),
    "sink.dispatchers.topic": ("text", _PLACE, ""),
    "sink.dispatchers.target-schema": ("text", "the name of a table upstream, by which TiCDC dispatches", ""),
    "sink.dispatchers.target-table": ("text", "the name of a table upstream, by which TiCDC dispatches", ""),
    "sink.column-selectors": ("tables", "which columns are there", ""),
    "sink.column-selectors.matcher": ("texts", "which columns are there", ""),
    "sink.column-selectors.columns": ("texts", "which columns are there", ""),
    "sink.terminator": ("text", _CSV, r"\n"),
    "sink.date-separator": ("text", "where files of the storage sink lie", "day"),
    "sink.enable-partition-separator": ("bool", "where files of the storage sink lie", "true"),
    "sink.file-index-digit": ("int", "names of the storage sink's files", "20"),
    "sink.only-output-updated-columns": ("bool", "what is left out of images before an update", "true"),
    "sink.delete-only-output-handle-key-columns": ("bool", "whether deletes carry more than their key", "true"),
    "sink.content-compatible": ("bool", "the form of canal-json, and images before an update", "true"),
    "sink.send-bootstrap-interval-in-sec": ("int", "bootstrap messages of simple", "120"),
    "sink.send-bootstrap-in-msg-count": ("int", "bootstrap messages of simple", "10000"),
    "sink.send-bootstrap-to-all-partition": ("bool", "bootstrap messages of simple", "true"),
    "sink.send-all-bootstrap-at-start": ("bool", "bootstrap messages of simple", "true"),
    "sink.debezium-disable-schema": ("bool", f"{_TYPES}: without a schema the log's DDL gives the types", "true"),
    "sink.integrity.integrity-check-level": ("text", "whether rows carry checksums", "correctness"),
    "sink.integrity.corruption-handle-level": ("text", "whether rows with a wrong checksum are sent", "warn"),
    "sink.schema-registry": ("text", "schemas of avro; give it as --schema-registry", ""),
    "sink.csv.delimiter": ("text", _CSV, ","),
    "sink.csv.quote": ("text", _CSV, '"'),
    "sink.csv.null": ("text", _CSV, r"\N"),
    "sink.csv.include-commit-ts": ("bool", _CSV, "true"),
    "sink.csv.binary-encoding-method": ("text", "binary values of csv", "hex"),
    "sink.csv.output-old-value": ("bool", _IMAGES, "true"),
    "sink.csv.output-handle-key": ("bool", _CSV, "true"),
    "sink.csv.output-field-header": ("bool", _CSV, "true"),
    "sink.open.output-old-value": ("bool", _IMAGES, "false"),
    "sink.debezium.output-old-value": ("bool", _IMAGES, "false"),
    "sink.debezium.include-start-ts": ("bool", "start_ts of rows, and so which are one transaction", "true"),
    "sink.kafka-config.partition-num": ("int", _PLACE, "N"),
    "sink.kafka-config.max-message-bytes": ("int", _LARGE, "10485760"),
    "sink.kafka-config.output-raw-change-event": ("bool", "whether updates of keys are split", "true"),
    "sink.pulsar-config.output-raw-change-event": ("bool", "whether updates of keys are split", "true"),
    "sink.cloud-storage-config.output-raw-change-event": ("bool", "whether updates of keys are split", "true"),
    "sink.cloud-storage-config.output-column-id": ("bool", "schema files of the storage sink", "true"),
    "sink.cloud-storage-config.use-table-id-as-path": ("bool", "where files of the storage sink lie", "true"),
    "sink.kafka-config.codec-config.enable-tidb-extension": ("bool", "commit_ts, watermarks and TiDB's types", "true"),
    "sink.kafka-config.codec-config.max-batch-size": ("int", "how many rows a message of open-protocol has", "16"),
    "sink.kafka-config.codec-config.avro-enable-watermark": ("bool", "watermarks and DDL in avro", "true"),
    "sink.kafka-config.codec-config.avro-decimal-handling-mode": ("text", "DECIMAL in avro", "string"),
    "sink.kafka-config.codec-config.avro-bigint-unsigned-handling-mode": ("text", "BIGINT UNSIGNED in avro", "string"),
    "sink.kafka-config.codec-config.avro-include-before-value": ("bool", _IMAGES, "true"),
    "sink.kafka-config.codec-config.encoding-format": ("text", "whether simple is JSON or Avro", "avro"),
    "sink.kafka-config.codec-config.output-row-key": ("bool", "which rows of tables without key are the same", "true"),
    "sink.kafka-config.large-message-handle.large-message-handle-option": ("text", _LARGE, "claim-check"),
    "sink.kafka-config.large-message-handle.large-message-handle-compression": ("text", "packed messages", "lz4"),
    "sink.kafka-config.large-message-handle.claim-check-storage-uri": ("text", f"{_LARGE}; give --claim-check", ""),
    "sink.kafka-config.large-message-handle.claim-check-raw-value": ("bool", _LARGE, "true"),
    "time-zone": ("text", "checksums of rows with a TIMESTAMP, and in debezium partitions by one", "Asia/Shanghai"),
}  # fmt: skip
"""Keys on which an answer depends: kind, what does, and an example of a value to give."""

OUTSIDE = ("time-zone",)
"""Settings that are no key of a changefeed file: ``time-zone`` is ``tz`` of ``cdc server``."""

_SENDS = "decides how fast, and by which connection, TiCDC sends; the messages are the same"
_WORKS = "decides how TiCDC shares its work; the messages are the same"
_OTHER_SINK = "of another sink than those that write a log"
_REDO = "of redo logs, which are written beside the log"
_LOST = "has no effect: TiCDC's API does not pass it on; the key of the same name outside [sink] has"

_NONE: Mapping[str, tuple[str, Mapping[Kind, str]]] = {
    "": (_WORKS, {
        "int": "memory-quota event-collector-batch-count event-collector-batch-bytes",
        "bool": "check-gc-safe-point enable-sync-point enable-table-monitor ignore-ineligible-table "
                "enable-active-active",
        "duration": "sync-point-interval sync-point-retention changefeed-error-stuck-duration "
                    "active-active-progress-interval active-active-sync-stats-interval",
        "text": "performance-mode sql-mode",
    }),
    "mounter": (_WORKS, {"int": "worker-num"}),
    "scheduler": (_WORKS, {
        "bool": "enable-table-across-nodes enable-splittable-check force-split",
        "int": "region-threshold region-count-per-span write-key-threshold scheduling-task-count-per-node "
               "balance-score-threshold",
        "duration": "region-count-refresh-interval",
        "number": "min-traffic-percentage max-traffic-percentage",
    }),
    "synced-status": (_WORKS, {"int": "synced-check-interval checkpoint-interval"}),
    "consistent": (_REDO, {
        "text": "level storage compression",
        "int": "max-log-size flush-interval meta-flush-interval event-collector-batch-count encoding-worker-num "
               "flush-worker-num flush-concurrency",
        "bool": "use-file-backend",
    }),
    "consistent.memory-usage": (_REDO, {"int": "memory-quota-percentage"}),
    "sink": (_SENDS, {
        "text": "transaction-atomicity",
        "int": "encoder-concurrency advance-timeout-in-sec",
        "bool": "enable-kafka-sink-v2 safe-mode",
    }),
    "sink.kafka-config": (_SENDS, {
        "int": "replication-factor required-acks",
        "text": "kafka-version compression kafka-client-id dial-timeout write-timeout read-timeout sasl-user "
                "sasl-password sasl-mechanism sasl-gssapi-auth-type sasl-gssapi-keytab-path "
                "sasl-gssapi-kerberos-config-path sasl-gssapi-service-name sasl-gssapi-user sasl-gssapi-password "
                "sasl-gssapi-realm sasl-oauth-client-id sasl-oauth-client-secret sasl-oauth-token-url "
                "sasl-oauth-grant-type sasl-oauth-audience ca cert key",
        "texts": "sasl-oauth-scopes",
        "bool": "auto-create-topic sasl-gssapi-disable-pafxfast enable-tls insecure-skip-verify",
    }),
    "sink.kafka-config.glue-schema-registry-config": (_SENDS, {
        "text": "registry-name region access-key secret-access-key token",
    }),
    "sink.pulsar-config": (_SENDS, {
        "text": "tls-key-file-path tls-certificate-file tls-trust-certs-file-path pulsar-version compression-type "
                "authentication-token token-from-file basic-user-name basic-password auth-tls-certificate-path "
                "auth-tls-private-key-path",
        "int": "pulsar-producer-cache-size connection-timeout operation-timeout batching-max-messages "
               "batching-max-publish-delay send-timeout",
    }),
    "sink.pulsar-config.oauth2": (_SENDS, {
        "text": "oauth2-issuer-url oauth2-audience oauth2-private-key oauth2-client-id oauth2-scope",
    }),
    "sink.mysql-config": (_OTHER_SINK, {
        "int": "worker-count max-txn-row max-multi-update-row-size max-multi-update-row",
        "text": "tidb-txn-mode ssl-ca ssl-cert ssl-key time-zone write-timeout read-timeout timeout async-ddl-timeout",
        "bool": "enable-batch-dml enable-multi-statement enable-cache-prepared-statement",
    }),
    "sink.cloud-storage-config": (_SENDS, {
        "int": "worker-count file-size spool-disk-quota file-expiration-days flush-concurrency",
        "text": "flush-interval spool-base-dir file-cleanup-cron-spec",
    }),
}  # fmt: skip
"""Keys of each table on which no message depends: why, and the keys by kind."""

_CYCLIC = "TiCDC of v4.0 to v6.1 only: it marks its own rows in tables that no changefeed file of today names"
_TABLE_LISTS = "of files before TiDB v4.0 and read without filter.rules only; write its tables as filter.rules"

GONE: Mapping[str, tuple[Kind, Literal["none", "refused"], str]] = {
    "cyclic-replication.enable": ("bool", "refused", _CYCLIC),
    "cyclic-replication.replica-id": ("int", "none", _CYCLIC),
    "cyclic-replication.filter-replica-ids": ("ints", "none", _CYCLIC),
    "cyclic-replication.id-buckets": ("int", "none", _CYCLIC),
    "cyclic-replication.sync-ddl": ("bool", "none", _CYCLIC),
    "filter.do-dbs": ("texts", "refused", _TABLE_LISTS),
    "filter.do-tables": ("any", "refused", _TABLE_LISTS),
    "filter.ignore-dbs": ("texts", "refused", _TABLE_LISTS),
    "filter.ignore-tables": ("any", "refused", _TABLE_LISTS),
    "filter.ddl-allow-list": ("any", "none", "TiCDC up to v6.2: sends more types of DDL; all that a log has are read"),
    "scheduler.type": ("text", "none", f"TiCDC up to v6.0: {_WORKS}"),
    "scheduler.polling-time": ("int", "none", f"TiCDC up to v6.0: {_WORKS}"),
    "scheduler.region-per-span": ("int", "none", f"TiCDC of v6.6 to v9.0 (beta): {_WORKS}"),
    "scheduler.split-number-per-node": ("int", "none", f"TiCDC of v9.0 (beta): {_WORKS}"),
    "consistent.memory-usage.event-cache-percentage": ("int", "none", f"TiCDC of v6.5 to v7.6: {_REDO}"),
    "sink.large-message-only-handle-key-columns": ("bool", "none", "TiCDC of v7.2: a message of keys alone shows it"),
    "sink.pulsar-config.tls-certificate-path": ("text", "none", f"TiCDC of v7.4 to v7.6: {_SENDS}"),
    "sink.pulsar-config.tls-private-key-path": ("text", "none", f"TiCDC of v7.4 to v7.6: {_SENDS}"),
}
"""Keys that releases of TiCDC since v4.0.0 had, and today's has not."""

RENAMED: Mapping[str, str] = {
    "filter.ddl-white-list": "filter.ddl-allow-list",
    "sink.dispatch-rules": "sink.dispatchers",
    "sink.dispatchers.rule": "sink.dispatchers.dispatcher",
    "sink.csv.date-separator": "sink.date-separator",
    "sink.csv.terminator": "sink.terminator",
    "sink.kafka-config.large-message-handle.claim-check-compression":
        "sink.kafka-config.large-message-handle.large-message-handle-compression",
}  # fmt: skip
"""Keys of older releases (v4.0.0, v4.0.0, v4.0.0, v6.4.0, v6.4.0, v7.3.0), and their names of today."""


def _keys() -> dict[str, Key]:
    found = {n: Key(k, "read", d, _give(n, v) if v else "--changefeed FILE") for n, (k, d, v) in _READ.items()}
    for table, (why, kinds) in _NONE.items():
        for kind, names in kinds.items():
            found |= {f"{table}.{n}".lstrip("."): Key(kind, "none", why) for n in names.split()}
    found |= {f"sink.{n}": Key("bool", "none", _LOST) for n in ("case-sensitive", "force-replicate")}
    return found | {n: Key(k, bearing, why) for n, (k, bearing, why) in GONE.items()}


KEYS: Mapping[str, Key] = _keys()
"""Every setting by its path in the file; of a list of tables (``sink.dispatchers``) the keys of its members too."""

OF_OPTIONS: Mapping[str, Key] = {
    "sink.csv.columns": Key(
        "text", "read", "which columns are there", "--option csv.columns='SCHEMA.TABLE:COLUMN,COLUMN;..'"
    ),
    "debezium-binary-handling-mode": Key(
        "text", "read", "binary values of debezium", "--option debezium-binary-handling-mode=hex"
    ),
}  # fmt: skip
"""Settings that no file of TiCDC has: columns of csv rows, with ``*``, ``?``, ``!`` before what is left out, and how
Debezium's own connector writes bytes."""

KNOWN: Mapping[str, Key] = {**KEYS, **OF_OPTIONS}
"""All that can be known of a changefeed."""

TABLES = frozenset(name.rpartition(".")[0] for name in KEYS) - {""}
"""Tables and lists of tables of the file, by path."""

_ALIASES: Mapping[str, str] = {"default": "open-protocol", "open": "open-protocol", "flat-avro": "avro"}


def protocol_named(name: str) -> str:
    """The protocol that TiCDC means by a name: in any case, and by other names, too.

    Examples
    --------
    >>> protocol_named("flat-avro"), protocol_named("Canal-JSON")
    ('avro', 'canal-json')
    """
    return _ALIASES.get(name.lower(), name.lower())


CHOICES: Mapping[str, tuple[str, ...]] = {
    "filter.event-filters.ignore-event": (
        "all dml", "all ddl", "insert", "update", "delete", "create schema", "drop schema", "create database",
        "drop database", "modify schema charset and collate", "create table", "drop table", "truncate table",
        "rename table", "recover table", "alter table", "modify table comment", "modify table charset and collate",
        "create view", "drop view", "add table partition", "drop table partition", "truncate table partition",
        "exchange table partition", "reorganize table partition", "alter table partitioning",
        "remove table partitioning", "add column", "drop column", "modify column", "set default value",
        "rebase auto id", "add primary key", "drop primary key", "create index", "drop index", "rename index",
        "alter index visibility", "alter ttl info", "alter ttl remove", "multi schema change", "add foreign key",
        "drop foreign key", "add fulltext index", "create hybrid index",
    ),
    "integrity.integrity-check-level": ("none", "correctness"),
    "integrity.corruption-handle-level": ("warn", "error"),
    "sink.protocol": (
        "open-protocol", "canal-json", "simple", "debezium", "debezium-avro", "avro", "csv", "canal", "maxwell",
        "craft", *_ALIASES,
    ),
    "sink.csv.binary-encoding-method": ("base64", "hex"),
    "sink.date-separator": ("none", "year", "month", "day"),
    "sink.kafka-config.codec-config.avro-decimal-handling-mode": ("precise", "string"),
    "sink.kafka-config.codec-config.avro-bigint-unsigned-handling-mode": ("long", "string"),
    "sink.kafka-config.codec-config.encoding-format": ("json", "avro"),
    "sink.kafka-config.large-message-handle.large-message-handle-option": ("none", "claim-check", "handle-key-only"),
    "sink.kafka-config.large-message-handle.large-message-handle-compression": ("none", "snappy", "lz4"),
}  # fmt: skip
"""What TiCDC takes for keys that have few values; it refuses any other. Events are from ``pkg/filter/utils.go``."""


def full_name(name: str) -> str:
    """The path of a setting: ``csv.delimiter`` and ``partition-num`` are short for theirs; else the name itself."""
    name = name.replace("_", "-")
    if name in KNOWN:
        return name
    return f"sink.{name}" if f"sink.{name}" in KNOWN else FROM_URI.get(name, name)


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The name that is most like it; None where none is."""
    found = get_close_matches(name.replace("_", "-"), list(names), n=1, cutoff=0.6)
    return found[0] if found else None
