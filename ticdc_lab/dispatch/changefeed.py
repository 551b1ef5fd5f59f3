"""A changefeed file: what TiCDC reads from it about topics, partitions and the form of row changes, and back to TOML.

References: pingcap/ticdc and pingcap/tiflow, ``pkg/config`` (``replica_config.go``, ``sink.go``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import tomlkit
from tomlkit.items import InlineTable

from ticdc_lab.dispatch.checks import Selector, unknown_dispatchers
from ticdc_lab.dispatch.names import STRATEGIES, Flavour
from ticdc_lab.dispatch.routing import check_target
from ticdc_lab.dispatch.rules import Rule, rules_from_config
from ticdc_lab.dispatch.topics import check_topic
from ticdc_lab.errors import DispatchError
from ticdc_lab.settings import Settings
from ticdc_lab.settings.detected import OLD_VALUE
from ticdc_lab.settings.file import ChangefeedFile, parse_file, read_file
from ticdc_lab.settings.matchers import TableFilter

_RAW = "output-raw-change-event"
_SINKS = ("kafka-config", "pulsar-config", "cloud-storage-config")
_OFF = ("csv", "avro")
"""Protocols that leave the old image out unless a setting puts it in (:data:`OLD_VALUE`)."""

_STORAGE = frozenset({"file", "s3", "gcs", "gs", "azblob", "azure", "cephfs", "hdfs", "oss", "ks3", "cos", "noop"})
"""Schemes of sink-uris that write to a storage sink."""


@dataclass(frozen=True, slots=True)
class Changefeed:
    """The settings of a changefeed that decide which message a row change becomes and where it goes.

    ``partitions``, ``default_topic`` and ``protocol`` may come from the sink-uri; None if unknown.
    ``old_value`` is False where no image before the change is written (``enable-old-value`` of the classic architecture
    up to v7, or the protocol's ``output-old-value``); ``dispatch_old_value`` is False for the first alone, which
    changes the dispatcher too. ``raw`` is ``output-raw-change-event``: updates of keys are not split. ``selectors`` are
    its column selectors: matcher and columns of each. ``to_storage``: its sink has no partitions. ``notes``
    are sentences about how TiCDC acts on the file where that is not what it seems to ask for.
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
    selectors: tuple[Selector, ...] = ()
    to_storage: bool = False
    notes: tuple[str, ...] = field(default=(), compare=False)
    name: str = field(default="", compare=False)  # of its file, for people

    def checked(self, *, flavour: Flavour = "new") -> Changefeed:
        """The same; raises :class:`DispatchError` as TiCDC does when it creates the changefeed."""
        with naming(self.name):
            return self._checked(flavour)

    def _checked(self, flavour: Flavour) -> Changefeed:
        for rule in self.rules:
            TableFilter.parse(rule.matcher, case_sensitive=self.case_sensitive)
            check_target(rule)
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

    def require_partitions(self) -> Changefeed:
        """The same; raises :class:`DispatchError` where its sink has no partitions."""
        if self.to_storage:
            raise DispatchError(
                "This changefeed writes to a storage sink, which has no partitions: the rows of each table lie in a "
                "folder of its own.",
                hint="Name the sink-uri of a Kafka changefeed: --sink-uri 'kafka://HOST:PORT/TOPIC?partition-num=N'.",
            )
        return self

    def to_toml(self) -> str:
        """The changefeed file. Everything but the sink-uri's part can be pasted; that part is a comment."""
        return tomlkit.dumps(_document(self))


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Name the file in what TiCDC refuses of it."""
    try:
        yield
    except DispatchError as error:
        raise DispatchError(f"{name}: {error.message}" if name else error.message, hint=error.hint) from None


def read_changefeed(path: str | Path, *, sink_uri: str | None = None, flavour: Flavour = "new") -> Changefeed:
    """Read a changefeed file.

    Parameters
    ----------
    path
        TOML, as ``cdc cli changefeed create --config`` takes it, or the JSON of ``cdc cli changefeed query`` or of the
        open API.
    sink_uri
        What ``--sink-uri`` was; wins over the file as in TiCDC. A key ``sink-uri`` in the file serves too.
    flavour
        ``classic`` allows fewer topic expressions and knows ``enable-old-value``.

    Raises
    ------
    DispatchError
        The file cannot be read, is neither, has a key that TiCDC does not know, or holds what TiCDC refuses.
    """
    return changefeed_of(read_file(path, sink_uri=sink_uri), flavour=flavour)


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
    return changefeed_of(parse_file(text, name=name, sink_uri=sink_uri), flavour=flavour)


def changefeed_of(file: ChangefeedFile, *, flavour: Flavour = "new") -> Changefeed:
    """What of a file decides topics, partitions and the form of row changes.

    Raises DispatchError: the file contains what TiCDC refuses.
    """
    given = file.settings
    if file.refused:
        raise DispatchError(f"In {file.name} {file.refused[0]}")
    parts = urlsplit(file.sink_uri or "")
    protocol = given.value("sink.protocol")
    with naming(file.name):
        rules = rules_from_config(given.value("sink.dispatchers", ()))
    if parts.scheme.startswith("pulsar") and (keyed := [r for r in rules if r.partition.lower() not in STRATEGIES]):
        raise DispatchError(
            f"In {file.name} {keyed[0].partition!r} is no dispatcher: to Pulsar, TiCDC sends it as the key of each "
            f"message of {' '.join(keyed[0].matcher)}, and Pulsar's client chooses the partition by it.",
            hint=f"Take one of {', '.join(STRATEGIES)}.",
        )
    selectors = [Selector(tuple(s.get("matcher", ())), tuple(s.get("columns", ())))
                 for s in given.value("sink.column-selectors", ())]  # fmt: skip
    enabled = given.value("enable-old-value", True)
    shown = given.value(OLD_VALUE[protocol], protocol not in _OFF) if protocol in OLD_VALUE else True
    feed = Changefeed(
        rules=rules,
        case_sensitive=given.value("case-sensitive", False),
        protocol=protocol,
        partitions=given.value("partition-num"),
        default_topic=parts.path.strip("/") or None,
        old_value=enabled and shown,
        dispatch_old_value=enabled,
        raw=any(given.value(f"sink.{s}.{_RAW}", False) for s in _SINKS),
        only_updated_columns=given.value("only-output-updated-columns", False),
        delete_only_handle_key=given.value("delete-only-output-handle-key-columns", False),
        force_replicate=given.value("force-replicate", False),
        selectors=tuple(selectors),
        to_storage=parts.scheme in _STORAGE or (protocol == "csv" and not parts.scheme),
        notes=(*(["The filter is not applied: every table of the log is dispatched."] if _filters(given) else []),
               *given.notes, *unknown_dispatchers(rules)),
        name=file.name,
    )  # fmt: skip
    return feed.checked(flavour=flavour)


def _filters(given: Settings) -> bool:
    rules = given.value("filter.rules", ("*.*",))
    return rules != ("*.*",) or "filter.event-filters" in given


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
    if feed.selectors:
        sink["column-selectors"] = [{"matcher": [*s.matcher], "columns": [*s.columns]} for s in feed.selectors]
    if feed.only_updated_columns:
        sink["only-output-updated-columns"] = True
    if feed.delete_only_handle_key:
        sink["delete-only-output-handle-key-columns"] = True
    kafka = {"partition-num": feed.partitions, _RAW: feed.raw or None}
    if any(v is not None for v in kafka.values()):
        sink["kafka-config"] = {k: v for k, v in kafka.items() if v is not None}
    if feed.protocol in OLD_VALUE and feed.dispatch_old_value and feed.old_value == (feed.protocol in _OFF):
        *tables, key = OLD_VALUE[feed.protocol].split(".")[1:]
        of = sink
        for name in tables:
            of = of.setdefault(name, {})
        of[key] = feed.old_value
    if len(sink):
        doc["sink"] = sink
    return doc


def _inline(rule: Rule) -> InlineTable:
    out = tomlkit.inline_table()
    out["matcher"] = list(rule.matcher)
    out["partition"] = rule.partition
    for key in ("index", "columns", "topic", "target-schema", "target-table"):
        value = getattr(rule, key.replace("-", "_"))
        if value:
            out[key] = list(value) if key == "columns" else value
    return out
