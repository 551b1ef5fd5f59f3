"""A changefeed file: what TiCDC reads from it about topics, partitions and the form of row changes, and back to TOML.

References: pingcap/ticdc and pingcap/tiflow, ``pkg/config`` (``replica_config.go``, ``sink.go``).
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import tomlkit
from tomlkit.items import InlineTable

from ticdc_lab.dispatch.hashing import Flavour
from ticdc_lab.dispatch.rules import Rule, rules_from_config
from ticdc_lab.dispatch.topics import TableFilter, check_topic
from ticdc_lab.errors import DispatchError

_RAW = "output-raw-change-event"
_SINKS = ("kafka-config", "pulsar-config", "cloud-storage-config")
_OUTPUTS = {"open-protocol": "open", "debezium": "debezium", "csv": "csv"}
"""Protocols that can leave the old image out, and the table of ``[sink]`` that says so (``output-old-value``)."""

_READ = {
    "": {"case-sensitive", "enable-old-value", "force-replicate", "sink", "sink-uri"},
    "sink": {
        *("dispatchers", "protocol", "only-output-updated-columns", "delete-only-output-handle-key-columns"),
        *("kafka-config", "pulsar-config", "cloud-storage-config", "open", "debezium", "csv", _RAW),
    },
    "dispatchers": {"matcher", "partition", "dispatcher", "index", "columns", "topic"},
}
_NO_BEARING = {
    "": {
        *("memory-quota", "check-gc-safe-point", "enable-sync-point", "enable-table-monitor", "bdr-mode", "mounter"),
        *(
            "ignore-ineligible-table",
            "sync-point-interval",
            "sync-point-retention",
            "filter",
            "consistent",
            "integrity",
        ),
        *("scheduler", "changefeed-error-stuck-duration", "synced-status", "sql-mode", "performance-mode"),
        *("enable-active-active", "active-active-progress-interval", "active-active-sync-stats-interval"),
        *("event-collector-batch-count", "event-collector-batch-bytes", "cyclic-replication"),
    },
    "sink": {
        *("transaction-atomicity", "column-selectors", "schema-registry", "encoder-concurrency", "terminator"),
        *("date-separator", "enable-partition-separator", "file-index-digit", "enable-kafka-sink-v2"),
        *("content-compatible", "safe-mode", "mysql-config", "iceberg-config", "advance-timeout-in-sec"),
        *("send-bootstrap-interval-in-sec", "send-bootstrap-in-msg-count", "send-bootstrap-to-all-partition"),
        *("send-all-bootstrap-at-start", "debezium-disable-schema", "integrity", "force-replicate", "case-sensitive"),
    },
    "dispatchers": {"target-schema", "target-table"},
}


@dataclass(frozen=True, slots=True)
class Changefeed:
    """The settings of a changefeed that decide which message a row change becomes and where it goes.

    ``partitions``, ``default_topic`` and ``protocol`` may come from the sink-uri; None where nobody says.
    ``old_value`` is False where no image before the change is written (``enable-old-value`` of the classic architecture
    up to v7, or the protocol's ``output-old-value``); ``dispatch_old_value`` is False for the first alone, which
    changes the dispatcher too. ``raw`` is ``output-raw-change-event``: updates of keys are not split. ``notes`` are
    sentences about keys of the file that were not read.
    """

    rules: tuple[Rule, ...] = ()
    case_sensitive: bool = False
    protocol: str | None = None
    partitions: int | None = None
    default_topic: str | None = None
    old_value: bool = True
    dispatch_old_value: bool = True
    raw: bool = False
    only_updated_columns: bool = False
    delete_only_handle_key: bool = False
    force_replicate: bool = False
    notes: tuple[str, ...] = field(default=(), compare=False)

    def checked(self, *, flavour: Flavour = "new") -> Changefeed:
        """The same; raises :class:`DispatchError` as TiCDC does when it creates the changefeed."""
        for rule in self.rules:
            TableFilter.parse(rule.matcher, case_sensitive=self.case_sensitive)
            check_topic(rule.topic, protocol=self.protocol, flavour=flavour)
        if self.partitions is not None and self.partitions < 1:
            raise DispatchError(f"[CDC:ErrKafkaInvalidPartitionNum]invalid partition num {self.partitions}")
        if self.delete_only_handle_key and self.protocol == "csv":
            raise DispatchError(
                "[CDC:ErrSinkInvalidConfig]CSV protocol always output all columns for the delete event, "
                "do not set `delete-only-output-handle-key-columns` to true"
            )
        if self.force_replicate and (self.delete_only_handle_key or self.protocol == "avro"):
            what = "avro" if self.protocol == "avro" else "delete-only-output-handle-key-columns"
            raise DispatchError(f"TiCDC refuses force-replicate together with {what}: a table without key has none.")
        return self

    def to_toml(self) -> str:
        """The changefeed file. Everything but the sink-uri's part can be pasted; that part is a comment."""
        return tomlkit.dumps(_document(self))


def read_changefeed(path: str | Path, *, sink_uri: str | None = None, flavour: Flavour = "new") -> Changefeed:
    """Read a changefeed file.

    Parameters
    ----------
    path
        TOML, as ``cdc cli changefeed create --config`` takes it.
    sink_uri
        What ``--sink-uri`` was; wins over the file as in TiCDC. A key ``sink-uri`` in the file serves too.
    flavour
        ``classic`` allows fewer topic expressions and knows ``enable-old-value``.

    Raises
    ------
    DispatchError
        The file cannot be read, is no TOML, or holds what TiCDC refuses.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise DispatchError(f"The changefeed file {path} cannot be read: {getattr(e, 'strerror', None) or e}.") from e
    return changefeed_from_toml(text, sink_uri=sink_uri, flavour=flavour, name=str(path))


def changefeed_from_toml(
    text: str, *, sink_uri: str | None = None, flavour: Flavour = "new", name: str = "the text"
) -> Changefeed:
    """As :func:`read_changefeed`, from the text of a file.

    Examples
    --------
    >>> feed = changefeed_from_toml('''
    ... [sink]
    ... dispatchers = [{matcher = ["shop.*"], partition = "index-value"}]
    ... ''')
    >>> feed.rules[0].partition
    'index-value'
    """
    try:
        config = tomllib.loads(text)
    except tomllib.TOMLDecodeError as e:
        raise DispatchError(f"The changefeed file {name} is no TOML: {e}.") from e
    sink = _table(config, "sink", name)
    kafka = _table(sink, "kafka-config", name)
    rules = rules_from_config(_dispatchers(sink, name))
    protocol = _value(sink, "protocol", str, None, name)
    enabled = _value(config, "enable-old-value", bool, True, name)
    feed = Changefeed(
        rules=rules,
        case_sensitive=_value(config, "case-sensitive", bool, False, name),
        protocol=protocol,
        partitions=_value(kafka, "partition-num", int, None, name),
        dispatch_old_value=enabled,
        raw=any(_value(_table(sink, s, name), _RAW, bool, False, name) for s in _SINKS)
        or _value(sink, _RAW, bool, False, name),
        only_updated_columns=_value(sink, "only-output-updated-columns", bool, False, name),
        delete_only_handle_key=_value(sink, "delete-only-output-handle-key-columns", bool, False, name),
        force_replicate=_value(config, "force-replicate", bool, False, name),
        notes=_notes(config, sink),
    )
    feed = _with_uri(feed, sink_uri or config.get("sink-uri"))
    written = _table(sink, _OUTPUTS.get(feed.protocol or "", ""), name) if feed.protocol in _OUTPUTS else {}
    shown = _value(written, "output-old-value", bool, feed.protocol not in ("csv", "avro"), name)
    return replace(feed, old_value=enabled and shown).checked(flavour=flavour)


def _with_uri(feed: Changefeed, uri: Any) -> Changefeed:
    """What the sink-uri says wins, as in TiCDC."""
    if not isinstance(uri, str) or not uri:
        return feed
    parts = urlsplit(uri)
    given = {k: v[-1] for k, v in parse_qs(parts.query).items()}
    number = given.get("partition-num")
    if number is not None and not number.isdecimal():
        raise DispatchError(
            f"[CDC:ErrKafkaInvalidConfig]kafka config invalid: partition-num={number!r} in the sink-uri"
        )
    return replace(
        feed,
        protocol=given.get("protocol") or feed.protocol,
        partitions=int(number) if number is not None else feed.partitions,
        default_topic=parts.path.strip("/") or feed.default_topic,
    )


def _table(config: Mapping[str, Any], key: str, name: str) -> Mapping[str, Any]:
    found = config.get(key, {})
    if not isinstance(found, Mapping):
        raise DispatchError(f"In {name} expected a table [{key}]; found {found!r}.")
    return found


def _dispatchers(sink: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    found = sink.get("dispatchers", [])
    if not isinstance(found, list) or not all(isinstance(r, Mapping) for r in found):
        raise DispatchError(f"In {name} expected dispatchers = [{{matcher = [..], ..}}, ..]; found {found!r}.")
    for rule in found:
        for key, kind in (("matcher", list), ("columns", list), ("index", str), ("topic", str), ("partition", str)):
            _value(rule, key, kind, None, name)
        if not all(isinstance(v, str) for key in ("matcher", "columns") for v in rule.get(key) or ()):
            raise DispatchError(f"In {name} expected texts in matcher and columns; found {dict(rule)!r}.")
    return found


def _value(config: Mapping[str, Any], key: str, kind: type, default: Any, name: str) -> Any:
    found = config.get(key, default)
    if found is not default and type(found) is not kind:
        raise DispatchError(f"In {name} expected {key} to be of type {kind.__name__}; found {found!r}.")
    return found


def _notes(config: Mapping[str, Any], sink: Mapping[str, Any]) -> tuple[str, ...]:
    """What of the file was not read, in sentences."""
    places = [("", config), ("sink", sink)]
    places += [("dispatchers", r) for r in sink.get("dispatchers", ()) if isinstance(r, Mapping)]
    unknown = {k for place, table in places for k in set(table) - _READ[place] - _NO_BEARING[place]}
    skipped = {k for place, table in places for k in set(table) & _NO_BEARING[place]}
    notes = []
    if unknown:
        notes.append(f"TiCDC knows no key {', '.join(sorted(unknown))}; its command line refuses such a file.")
    if skipped:
        notes.append(f"Not looked at, because no partition depends on it: {', '.join(sorted(skipped))}.")
    if _RAW in sink:
        notes.append(f"TiCDC reads {_RAW} from [sink.kafka-config]; it is taken from [sink] here.")
    if "filter" in config:
        notes.append("The filter is not applied: every table of the log is dispatched.")
    return tuple(notes)


def _document(feed: Changefeed) -> tomlkit.TOMLDocument:
    doc = tomlkit.document()
    if feed.default_topic is not None:
        doc.add(tomlkit.comment(f"sink-uri: topic {feed.default_topic}"))
    doc["case-sensitive"] = feed.case_sensitive
    if not feed.dispatch_old_value:
        doc["enable-old-value"] = False
    if feed.force_replicate:
        doc["force-replicate"] = True
    sink = tomlkit.table()
    if feed.protocol is not None:
        sink["protocol"] = feed.protocol
    if feed.rules:
        sink["dispatchers"] = tomlkit.array().multiline(True)
        sink["dispatchers"].extend([_inline(r) for r in feed.rules])
    if feed.only_updated_columns:
        sink["only-output-updated-columns"] = True
    if feed.delete_only_handle_key:
        sink["delete-only-output-handle-key-columns"] = True
    kafka = {"partition-num": feed.partitions, _RAW: feed.raw or None}
    if any(v is not None for v in kafka.values()):
        sink["kafka-config"] = {k: v for k, v in kafka.items() if v is not None}
    output = _OUTPUTS.get(feed.protocol or "")
    if output is not None and feed.dispatch_old_value and feed.old_value == (feed.protocol == "csv"):
        sink[output] = {"output-old-value": feed.old_value}
    if len(sink):
        doc["sink"] = sink
    return doc


def _inline(rule: Rule) -> InlineTable:
    out = tomlkit.inline_table()
    out["matcher"] = list(rule.matcher)
    out["partition"] = rule.partition
    for key in ("index", "columns", "topic"):
        value = getattr(rule, key)
        if value:
            out[key] = list(value) if key == "columns" else value
    return out
