"""Lines of TiCDC's own log, ``cdc.log``, beside a change log: which module reported what at the time of a stall.

The messages are from TiCDC v5.0 to v8.5 and of its new architecture, by their beginning; a line that begins with
none of them is counted.
"""

from __future__ import annotations

import gzip
import json
import re
import shlex
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from io import TextIOWrapper
from pathlib import Path

from ticdc_lab.errors import SourceError
from ticdc_lab.events.tso import physical_ms

SINK, OWNER, PULLER, DOWNSTREAM = MODULES = "sink", "owner", "puller", "downstream"
"""Where the cause is. The new architecture's coordinator and maintainer count as owner, its log service as puller."""

RESTART = "restart"
"""The kind of a line after which changes may be delivered again."""

KNOWN_LINES = (
    # what it is about, module, how a message begins
    ("slow region", PULLER, (
        "event feed finds a slow region", "event feed finds a initialized slow region",
        "event feed finds a uninitialized slow region", "event feed initializes a region too slow",
        "subscription client finds a initialized slow region", "subscription client finds a uninitialized slow region",
        "subscription client initializes a region too slow",
        "region not receiving event from tikv for too long time", "region not receiving resolved event from tikv",
        "event feed finds slow locked ranges",
    )),
    ("locks", PULLER, (
        "event feed resolve lock fail", "failed to resolve lock", "resolve lock failed",
        "subscription client resolve lock fail",
    )),
    ("missing region", PULLER, (
        "event feed holes exist", "subscription client holes exist", "fail to scan region", "load regions failed",
        "event feed load regions", "subscription client load regions",
    )),
    ("TiKV not reached", PULLER, (
        "event feed send request to grpc stream failed", "event feed send deregister request to grpc stream failed",
        "cannot get rpcCtx, retry span", "establish stream to store failed", "failed to receive from stream",
        "failed to establish", "EventFeed retry rate limited", "get grpc stream client failed",
        "send request to stream failed", "region request worker create grpc stream failed",
        "region request worker send request to grpc stream failed", "subscription client add region request failed",
        "region worker exited with error", "receive empty or unknown error msg", "event feed create grpc stream failed",
        "event feed meets an internal error", "region request worker receive from grpc stream failed",
        "region failure cannot be recovered",
    )),
    ("resolved_ts stands", PULLER, (
        "ddl puller resolved ts has not advanced", "GetSnapshot is taking too long, DDL puller stuck?",
        "resolved ts lag is too large for initialized subscription", "timeout waiting for log coordinator resolved ts",
        "wait resolved ts slow", "ResolvedTs stuck detected in puller", "The resolvedTs is fallen back in kvclient",
        "resolved ts advance step is too large", "register dispatcher with large startTs lag", "handle ddl job failed",
        "handle rename tables ddl job failed", "register dispatcher to eventStore failed",
        "register table to schemaStore failed", "scan events failed", "get ddl events failed",
        "dispatcher request retry limit exceeded", "load table from scheme store failed",
    )),
    ("sink error", SINK, (
        "execute DMLs with error", "Sink manager backend sink fails", "Transaction dmlSink backend flush fail",
        "Transaction sink backend flush fail", "Transaction dmlSink worker exits unexpectly", "sink fails",
        "Kafka DML producer run error", "error on running processor", "an error occurred in maintainer",
        "Event Dispatcher Manager Meets Error", "dispatcher report an error", "cloud storage sink write file failed",
        "Meet Duplicate Entry Error", "exec row changes failed", "Worker handles or generates sink task failed",
        "Worker handles sink task failed", "send message to kafka failed", "ddl producer send fail",
        "execute DMLs failed", "run processor failed", "processor report", "processor sub-component fails",
        "mq dml sink meet error", "mysqlSink encountered error", "mysql sink worker panic", "table sink restart fail",
        "Transaction sink worker exits unexceptedly", "Transaction sink worker panics",
        "Generate sink tasks failed", "DML sink producer client create fail",
        "kafka sink send message failed", "kafka message send failed", "kafka topic metadata refresh failed",
        "kafka topic creation skipped due to authorization failure",
        "kafka sink batch dml events failed", "pulsar sink batch dml events failed",
        "Pulsar DML producer async send error", "fetch topic meta failed",
        "Kafka admin client describe topic failed", "Kafka admin client describe topics failed",
        "Kafka admin client list topics failed", "Kafka admin client fetch topic metadata failed",
        "Kafka admin client create the topic failed", "kafka cluster unreachable", "failed to request s3, retrying",
        "failed to write data file to external storage", "failed to write index file to external storage",
        "failed to write schema file to external storage", "CloudStorageSink storage write file failed",
        "CloudStorageSink marshal checkpoint-ts failed", "redo log flush fail", "create redo manager failed",
        "redo manager writer meets write or flush fail", "Failed to register schema to the Registry",
        "Failed to query schema from the Registry", "GetCachedOrRegister: Could not register schema",
        "Test connection to Schema Registry failed", "failed to write syncpoint table", "syncpoint sink fail",
        "failed to create syncpoint table", "Single message is", "DDL message is too large", "avro encoding",
        "ExecContext", " topic not found, retry it",
    )),
    ("stuck table", SINK, (
        "Table checkpoint is stuck too long", "Close table doesn't return in time, may be stuck",
        "RemoveTable doesn't return in time, may be stuck", "Close process doesn't return in time, may be stuck",
        "Barrier doesn't return in time, may be stuck", "flush row changed events too slow",
        "Transaction dmlSink finds a slow transaction in conflict detector", "dispatcher cache events is full",
        "Table sink is not catching up with resolved ts for a long time", "DML events cannot be flushed in time",
        "slow dispatcher by checkpointTs", "kafka client initialization is slow",
        "kafka admin client initialization is slow", "kafka configuration initialization is slow",
    )),
    ("DDL fails", SINK, (
        "Execute DDL failed", "Execute DDL with error", "Failed to exec DDL", "execute ddl failed",
        "owner ddl sink fails on action", "ddl sink initialize failed", "execute DDL with error", "handle DDL failed",
        "async exec add index ddl failed", "check async exec ddl failed", "check previous asynchronous ddl failed",
        "failed to write ddl ts table", "[EmitDDLEvent] create ddl file failed", "send ddl event failed",
        "build DDL event fail", "DDL sink producer client create fail",
    )),
    ("DDL waits", DOWNSTREAM, (
        "DDL is running downstream", "DDL is still running downstream", "async ddl is still running",
        "async add index ddl is still running", "owner ddl sink performs an action too long",
        "Wait the asynchronous ddl to synchronize", "Unexpected DDL state, may not be found downstream",
        "execute ddl slowly", "Error when getting DDL state from TiDB",
        "failed to query from downstream to get ddl state", "ddl chan full, send it the next round",
    )),
    ("DDL barrier", OWNER, (
        "begin emit ddl event", "dispatcher hold block event", "barrier event is not resolved",
        "barrier event is not being selected", "a new ddl job is received",
        "event waits for a smaller commitTs before scheduling",
    )),
    ("DDL sent", SINK, (
        "Execute DDL succeeded", "Exec DDL succeeded", "ddl is sent", "kafka ddl event sent",
        "execute ddl event successfully", "all dispatchers reported event done", "ddl already executed",
        "storage sink executed ddl event",
    )),
    ("checkpoint stands", OWNER, (
        "schedulerv3: cannot advance checkpoint since missing", "checkpointTs can not be advanced",
        "can not advance checkpointTs since", "schedulerv3: span hole detected",
        "owner is not healthy since changefeeds are not ticked",
        "changefeed tick took too long", "changefeed close took too long", "maintainer is too slow",
        "coordinator is slow", "Etcd transaction took too long", "EtcdWorker reactor tick took too long",
        "Redo meta has not changed for a long time", "flushLog blocking too long",
        "etcd client outCh blocking too long", "etcd client watchCh blocking too long", "processor tick took too long",
        "processor close took too long", "scheduler tick took too long", "etcd RPC failed", "etcd health check error",
        "get time from pd failed", "updateGCSafePoint failed", "update gc safe point failed", "Set GC safepoint",
        "Set GC barrier failed", "Set service GC safepoint", "update service gc safepoint failed",
        "update keyspace gc barrier failed", "checkpointTs is smaller than the minimum service gc safepoint",
        "get ts from pd failed", "failed to send heartbeat", "failed to send block status",
        "node set checksum state not ok for a long time",
        "fail to calculate checkpoint ts", "maintainer bootstrap failed", "slow message handling detected",
        "actor handle received messages too slow", "actor poll received messages too slow", "upstream is not ready",
        "failed to create etcd healthy client", "peer message client detected error", "failed to update checkpointTs",
        "peer-message client: failed to connect to server", "failed to request resolved ts from log coordinator",
    )),
    (RESTART, OWNER, (
        "campaign owner successfully", "campaign coordinator successfully", "schedulerv3: new owner in power",
        "schedulerv3: detect owner switch after captures fail", "coordinator changed", "Coordinator changed",
        "owner resigned successfully", "resign owner actively", "coordinator resigned successfully",
        "run owner exited", "campaign owner routine exited", "capture recovered", "capture session done",
        "Capture added", "Capture deleted", "delete capture", "add capture", "cleaning up stale capture",
        "controller detects node changed", "log coordinator detect node", "bind changefeed to node",
        "changefeed maintainer bootstrapped", "Sink is restarted", "changefeed initialized", "stop processor",
        "changefeed restart backoff", "owner resign timeout", "run owner failed", "owner exited with error",
        "error on running owner", "owner campaign key deleted", "Received an out-of-order", "receive an out-of-order",
        "receive non-handshake event before handshake event", "dispatcher becomes non-working without operator",
        "session is disconnected", "reset capture failed", "local fence triggered",
        "dispatcher orchestrator local fence triggered", "campaign log coordinator failed",
        "coordinator exited report error", "remote target error, reset the connection",
    )),
    ("changefeed error", OWNER, (
        "an error occurred in Owner", "an warning occurred in Owner", "changefeed maintainer report an error",
        "changefeed maintainer report a fast fail error", "changefeed tick failed", "campaign owner failed",
        "campaign coordinator failed", "changefeed retry on warning for a very long time",
        "The changefeed won't be restarted", "changefeed will not be restarted", "changefeed meets an error",
        "changefeed checkpoint is lagging too much", "table trigger ddl events fetch failed",
        "failed to create new dispatcher manager", "table route conflict detected",
    )),
)  # fmt: skip
"""The meaning of lines: the first that fits. An error whose text comes from the downstream is the downstream's."""

_BEGINS = [(begin, kind, module) for kind, module, begins in KNOWN_LINES for begin in begins]
_FIRST_WORDS = {begin[:5] for begin, *_ in _BEGINS}
_DOWNSTREAM = re.compile(
    r"Error \d{4}|Duplicate entry|Deadlock found|Lock wait timeout|kafka server|client has run out of available brokers"
    r"|[mM]essage was too large|connection refused|i/o timeout|broken pipe|bad connection|no such host"
    r"|connection reset|invalid connection|NotLeaderForPartition|circuit breaker|Access ?Denied|NoSuchBucket"
)
_HEAD = re.compile(
    # what kubectl, a container's runtime, journald, compose or Loki put before a line; and grep, without a blank
    r"(?:\S.{0,2000}?[ \t]|[^\s\[\"]{1,500}[:>|-])?"
    r"\[(\d{4}/\d\d/\d\d \d\d:\d\d:\d\d(?:\.\d{1,6})?) ([+-]\d\d:\d\d)\] \[([A-Z]+)\] (?:\[[^\]\s]*\] )?"
)
_PART = re.compile(r'\[((?:"(?:[^"\\]|\\.)*"|[^\]"])*)\] ?')
_FIELD = re.compile(r'("(?:[^"\\]|\\.)*"|[^="]+)=(.*)', re.DOTALL)
_TS = re.compile(  # ``ddlCommitTs``, ``EventCommitTs`` and such are a commit_ts, too
    r"\b(?:\w*?((?:[cC]ommit|[rR]esolved|[cC]heckpoint|[fF]inished|[bB]arrier|[bB]lock)_?[tT]s)|ts)"
    r'"?[:= ]+"?(\d{17,19})\b'
)
_ROW = re.compile(r'"Database":("(?:[^"\\]|\\.)*"),"Table":("(?:[^"\\]|\\.)*")')
"""A row in what the new architecture's Kafka sink calls ``eventContext``."""
_COMMITTED = "committs", "finishedts"

MOST_LINES = 100_000
"""Recognised lines that are kept; more are counted."""


@dataclass(frozen=True, slots=True)
class CdcLine:
    """A line that is recognised."""

    ms: int  # when it was written, milliseconds since 1970 (UTC)
    # ``kind``, ``module``: as of :data:`KNOWN_LINES`; the module of an error with a downstream's text is
    # ``downstream``.
    kind: str
    module: str
    # ``message``, ``level``: as written.
    message: str
    level: str
    ts: tuple[int, ...]  # Commit_ts, resolved_ts and checkpoint_ts that it names (TSO), each once
    commit_ts: int | None  # the first of them that is a commit_ts; None without
    # ``table``, ``key``, ``error``: what it names of these; empty without.
    table: str
    key: str
    error: str
    where: str  # file and line number


@dataclass(frozen=True, slots=True)
class CdcLog:
    """What files of TiCDC's log contain."""

    lines: tuple[CdcLine, ...] = ()  # recognised lines in the order of their times
    # ``read``, ``cut``, ``continued``, ``beyond``: all lines; lines that end in their middle; lines without a time of
    # their own, such as of a stack; and recognised lines above :data:`MOST_LINES`.
    read: int = 0
    cut: int = 0
    continued: int = 0
    beyond: int = 0
    # Messages that :data:`KNOWN_LINES` does not have, with how often each comes.
    unrecognised: Mapping[str, int] = field(default_factory=dict)
    span_ms: tuple[int, int] | None = None  # times of the first and the last line; None without any


def read_cdc_log(files: Sequence[str]) -> CdcLog:
    """Read files of TiCDC's log: ``cdc.log``, rotated ones, their ``.gz``, and what containers print of it.

    Raises SourceError: a file is not there or damaged, or no line of any has the form of TiCDC's log.
    """
    found = parsed((f"{file}:{i}", line) for file in files for i, line in _joined(_lines(file)))
    if found.span_ms is None:
        raise SourceError(
            f"No line of {', '.join(files)} begins as TiCDC's log: expected [2024/01/31 11:09:24.123 +08:00] [INFO] ..",
            hint="Name the file that cdc server --log-file writes, or an export of its lines as text, JSON or CSV.",
        )
    return found


_PACKED = {b"\x28\xb5\x2f\xfd": "zstd -d", b"\xfd7zXZ\0": "xz -d", b"BZh": "bunzip2", b"PK\3\4": "unzip"}


def _lines(file: str) -> Iterator[str]:
    path = Path(file)
    try:
        with path.open("rb") as raw:
            magic = raw.read(8)
        for begin, unpack in _PACKED.items():
            if magic.startswith(begin):
                raise SourceError(
                    f"{file} is packed; expected text, or gzip as TiCDC packs it.",
                    hint=f"Unpack it first: {unpack} {shlex.quote(file)}",
                )
        with gzip.open(path, "rb") if magic.startswith(b"\x1f\x8b") else path.open("rb") as raw:
            code = "utf-16" if magic.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"  # PowerShell writes both
            for line in TextIOWrapper(raw, code, "replace", newline="\n"):
                yield line.rstrip("\r\n")
    except (OSError, EOFError, zlib.error) as error:
        raise SourceError(
            f"{file} cannot be read: {getattr(error, 'strerror', None) or error}.",
            hint=f"ls -l {shlex.quote(str(file))}",
        ) from None


_CRI = re.compile(r"\S+ (?:stdout|stderr) ([PF]) ")
_PART_OF_DOCKER = 1 << 14
"""Bytes after which Docker begins another line."""


_IN_CSV = re.compile(r'"(\[\d{4}/\d\d/\d\d (?:[^"]|"")*)"')
_IN_JSON = re.compile(r'"(\[\d{4}/\d\d/\d\d (?:[^"\\]|\\.)*)"')


def _exported(line: str) -> list[str]:
    """Lines of the log that are texts in CSV or JSON, as Loki, Elasticsearch, CloudWatch or Datadog export them."""
    if '[""' in line:
        return [cell.replace('""', '"') for cell in _IN_CSV.findall(line)]
    return [str(json.loads(f'"{text}"', strict=False)) for text in _IN_JSON.findall(line)]


def _joined(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Lines with their numbers, without what a container's runtime or a log shipper put around; its parts in one."""
    held, first, is_export = "", 0, False
    for i, line in enumerate(lines, 1):
        text, is_part = line, False
        if cri := _CRI.match(line):
            text, is_part = line[cri.end() :], cri[1] == "P"
        elif line.startswith("{"):
            with suppress(ValueError, AttributeError):
                of = json.loads(line)
                texts = [str(v) for k, v in of.items() if k == "log" or (isinstance(v, str) and _HEAD.match(v))]
                text = texts[0] if texts else line
                is_part = "log" in of and not text.endswith("\n") and len(text.encode()) >= _PART_OF_DOCKER
        if text is line and line[:1] != "[" and not _HEAD.match(line):
            texts = _exported(line)
            if is_export := is_export or bool(texts):  # other lines of the export are of no line of the log
                yield from ((i, one.rstrip("\r\n")) for one in texts)
                continue
        held, first = held + text.rstrip("\r\n"), first or i
        if not is_part:
            yield first, held
            held, first = "", 0
    if first:
        yield first, held


def parsed(numbered: Iterable[tuple[str, str]]) -> CdcLog:
    """What lines contain, each with its place.

    Examples
    --------
    >>> line = '[2024/01/31 11:09:24.123 +08:00] [INFO] [capture.go:512] ["campaign owner successfully"] [ownerRev=7]'
    >>> [found] = parsed([("cdc.log:1", line)]).lines
    >>> found.kind, found.module, found.ms
    ('restart', 'owner', 1706670564123)
    """
    found, times, unrecognised = list[CdcLine](), list[int](), Counter[str]()
    read = cut = continued = beyond = 0
    for where, line in numbered:
        if not line.strip():
            continue
        read += 1
        head = _HEAD.match(line)
        ms = None if head is None else _ms(head[1], head[2])
        if head is None or ms is None:
            continued += 1
            continue
        times.append(ms)
        parts, end = list[str](), head.end()
        while part := _PART.match(line, end):
            parts.append(part[1])
            end = part.end()
        cut += end < len(line)
        message = _unquoted(parts[0]) if parts else ""
        known = _known(message)
        if known is None:
            unrecognised[message or "(cut before its message)"] += 1
        elif len(found) >= MOST_LINES:
            beyond += 1
        else:
            found.append(_line(ms, *known, message, head[3], parts[1:], line[end:], where))
    span = (min(times), max(times)) if times else None
    return CdcLog(tuple(sorted(found, key=lambda f: f.ms)), read, cut, continued, beyond, unrecognised, span)


def _ms(at: str, zone: str) -> int | None:
    """The time of a line; None of one that no clock shows, such as in a line that two others overwrote."""
    second, _, fraction = at.partition(".")
    try:
        return _second_ms(second, zone) + int(fraction[:3].ljust(3, "0"))
    except ValueError:
        return None


@lru_cache(maxsize=1024)
def _second_ms(at: str, zone: str) -> int:
    return int(datetime.strptime(f"{at} {zone}", "%Y/%m/%d %H:%M:%S %z").timestamp()) * 1000


def _unquoted(text: str) -> str:
    if not text.startswith('"'):
        return text
    try:
        return str(json.loads(text, strict=False))
    except ValueError:  # escapes that JSON does not have
        return text[1:-1]


def _known(message: str) -> tuple[str, str] | None:
    if message[:5] not in _FIRST_WORDS:
        return None
    return next(((kind, module) for begin, kind, module in _BEGINS if message.startswith(begin)), None)


def _line(
    ms: int, kind: str, module: str, message: str, level: str, parts: list[str], rest: str, where: str
) -> CdcLine:  # fmt: skip
    of = dict[str, str]()
    for part in parts:
        if field := _FIELD.fullmatch(part):
            of.setdefault(_unquoted(field[1]), _unquoted(field[2]))
    text = " ".join([*(f"{k}={v}" for k, v in of.items() if k not in ("errorVerbose", "stack")), rest])
    named = [(name, int(ts)) for name, ts in _TS.findall(text)]
    committed = [ts for name, ts in named if name.lower().replace("_", "") in _COMMITTED]
    error = of.get("error", "")
    table = ".".join(of[n] for n in ("database", "schema", "table", "tableName") if of.get(n))
    if not table and (row := _ROW.search(text)):
        table = ".".join(map(_unquoted, row.groups()))
    if not table and (id_ := of.get("tableID")):
        table = f"table id {id_}"
    if _DOWNSTREAM.search(f"{error} {rest}"):
        module = DOWNSTREAM
    return CdcLine(
        ms, kind, module, message, level, tuple(dict.fromkeys(ts for _, ts in named)),
        committed[0] if committed else None, table, of.get("key", ""), error, where,
    )  # fmt: skip


SLACK_MS = 1_000
"""Clocks of captures and brokers may differ by so much."""

_ORDER = {kind: i for i, kind in enumerate((
    "sink error", "DDL fails", "stuck table", "DDL waits", "missing region", "locks", "TiKV not reached", "slow region",
    "resolved_ts stands", "checkpoint stands", "changefeed error", RESTART, "DDL barrier", "DDL sent",
))}  # fmt: skip
_PROGRESS = ("DDL sent",)


@dataclass(frozen=True, slots=True)
class NamedByLog:
    """Lines about a stall or a finding: of one kind and module."""

    # ``module``, ``kind``: as of :class:`CdcLine`.
    module: str
    kind: str
    by_ts: int  # Lines that name its commit_ts; the others were written at its time
    lines: tuple[CdcLine, ...]  # all of them, in their order


def named_by(
    log: CdcLog, *, from_ts: int, to_ts: int | None = None, from_ms: int | None = None, to_ms: int | None = None
) -> list[NamedByLog]:
    """The log's lines between two moments, the strongest evidence first.

    ``log``: TiCDC's log. ``from_ts``, ``to_ts``: a line that names a commit_ts, resolved_ts or checkpoint_ts from the
    one to the other is about it; without ``to_ts`` one that names exactly ``from_ts``, or the value before it.
    ``from_ms``, ``to_ms``: Lines that name none of them count if they were written between; by default at the times of
    both TSO.
    """
    least = physical_ms(from_ts) if from_ms is None else from_ms
    most = to_ms if to_ms is not None else physical_ms(to_ts) if to_ts is not None else least
    groups: dict[tuple[str, str], list[tuple[bool, CdcLine]]] = {}
    for line in log.lines:
        by_ts = any(from_ts - 1 <= ts <= (from_ts if to_ts is None else to_ts - 1) for ts in line.ts)
        at_its_time = least - SLACK_MS <= line.ms <= most + SLACK_MS
        if by_ts or (at_its_time and (to_ts is not None or not line.ts)):
            groups.setdefault((line.module, line.kind), []).append((by_ts, line))
    found = [
        NamedByLog(module, kind, sum(by for by, _ in own), tuple(line for _, line in own))
        for (module, kind), own in groups.items()
    ]
    return sorted(found, key=lambda n: (n.kind in _PROGRESS, n.by_ts == 0, _ORDER[n.kind], n.module))
