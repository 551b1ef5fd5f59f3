"""The trace of a run: what happened, in order, as a table that Spark, DuckDB and the figures read, or as a file.

During a run it is cheap tuples; text is made on reading.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from ticdc_lab.errors import missing_folder
from ticdc_lab.errors.whole_files import names_table
from ticdc_lab.machines.machine import Reason

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


TRACE = pa.schema(
    [
        ("run", pa.string()),  # a name the caller gives: scenario, variant, seed
        ("step", pa.int64()),  # rows of one event of the loop share it
        ("time_us", pa.int64()),  # virtual time
        ("node", pa.string()),  # capture-1, etcd, ...; an address (capture-1.2) from the second life on
        ("kind", pa.string()),  # one of KINDS
        ("peer", pa.string()),  # the other end of a message
        ("message", pa.string()),  # the name of the message, timer or command: DispatchTable, tick
        ("message_id", pa.int64()),  # joins sent, received, lost, ...; a duplicate has its original's
        ("detail", pa.string()),  # the message's fields as JSON, with the protocol's own names
        ("subject", pa.string()),  # of changed: one of SUBJECTS; of decided what is chosen for
        ("before", pa.string()),  # of changed
        ("after", pa.string()),  # of changed; of decided what was chosen
        ("because", pa.string()),  # a sentence
        ("rejected", pa.list_(pa.struct([("candidate", pa.string()), ("because", pa.string())]))),  # of decided
        # The content of after or because, as a value (ticdc_lab.machines.machine.Reason); null where it is none.
        ("reason", pa.struct([("kind", pa.string()), ("name", pa.string()), ("since_us", pa.int64())])),
    ]
)
"""One row an event or an output of it. Sorted by step; rows of a step are in the order in which they came out."""

KINDS = (
    "started",  # a node begins
    "sent",
    "received",
    "lost",  # the network dropped it for good (because: loss, partition, the node is down)
    "resent",  # the transport tries again
    "refused",  # the transport took nothing ("try again")
    "ignored",  # received and without effect; because: why (stale owner, old epoch)
    "fired",  # a timer; only with a full trace
    "asked",  # a user, a load or a fault asked the node for something
    "changed",
    "decided",
    "crashed",
    "restarted",
    "paused",
    "resumed",
    "parted",  # a partition begins; peer is the other side
    "healed",
    "violated",  # an invariant: subject is its name, because has the details; the run ends here
    "stopped",  # the end: because has the reason
)


class Subject(NamedTuple):
    """What rows of kind ``changed`` are about.

    ``writers``: the nodes that write them. ``holds``: what before and after are, null where there is none.
    ``states``: all of them where it is a state, without the ``@NODE`` that may follow.
    """

    writers: str
    holds: str
    states: tuple[str, ...] = ()


def _states(writers: str, states: str, of: str = "its state") -> Subject:
    return Subject(writers, of, tuple(states.split(", ")))


SUBJECTS: Mapping[str, Subject] = MappingProxyType(
    {
        # The table scheduler; of several changefeeds each subject is NAME/SUBJECT.
        "table:KEY": _states("capture", "preparing, prepared, replicating, stopping"),
        "capture:NAME": _states(
            "capture", "uninitialized, sync-sent, synced, incompatible, Uninitialized, Initialized, Stopping, "
            "registered, lost", "what the owner knows of it",
        ),
        "owner": Subject("capture", "its owner-rev"),
        "session": Subject("capture", "its address"),
        "session:NAME": Subject("etcd", "its revision"),
        "elected": Subject("etcd", "the owner's address"),
        "epoch": Subject("capture", "of its processor"),
        "stuck": Subject("capture", "the reason why the checkpoint stands"),
        "sink:TABLE": _states("capture", "stuck"),
        "global-checkpoint": Subject("etcd", "a ts"),
        "global-resolved": Subject("etcd", "a ts"),
        "barrier": Subject("etcd", "the ts of a DDL"),
        "tables": Subject("etcd", "how many are wanted"),
        "wanted-partitions": Subject("etcd", "how many"),
        "obeys": Subject("capture", "ADDRESS@REVISION of the owner"),
        "replication:KEY": _states("capture", "Absent, Prepare, Commit, Replicating, Removing"),
        "primary:KEY": Subject("capture", "the address of the capture that writes it"),
        "span:KEY": _states("capture", "absent, scheduling, replicating"),
        "operator:KEY": _states("capture", "add, move, remove, occupy, split, merge", "its kind"),
        "node:NAME": Subject("capture", "ready or restarted to the maintainer, its epoch to the coordinator"),
        "bootstrap": _states("capture", "done"),
        "block-event": Subject("capture", "the ts of a DDL"),
        "ddl:TS": _states("capture", "waiting, writing, passing"),
        "maintainer": Subject("capture", "its address"),
        "coordinator": _states("capture", "ready"),
        "changefeed:NAME": _states("capture, etcd", "absent, scheduling, working, normal, stopped"),
        "liveness": _states("capture", "Alive, Stopping, ALIVE, DRAINING, STOPPING, UNKNOWN"),
        "liveness:NAME": _states("capture", "ALIVE, DRAINING, STOPPING, UNKNOWN"),
        # The replication pipeline.
        "table-path:TABLE": _states("capture", "asking, scanning, streaming, replicating, stopping"),
        "ddl-puller": Subject("capture", "asking, scanning, streaming, or the job that it has read"),
        "load": _states("tidb", "done"),
        "ddl:ID": Subject("tidb", "the job's finished_ts"),
        "region:ID": Subject("store", "its leader, or its range and epoch"),
        "stream:REGION:CAPTURE": _states("store", "scanning, streaming"),
        "store:NAME": Subject("pd", "its address"),
        "pd:region:ID": Subject("pd", "known, or its leader and epoch"),
        "downstream": Subject("downstream", "its pace"),
        "partitions": Subject("downstream", "how many"),
        "executed:ID": Subject("downstream", "the DDL job's finished_ts"),
        "writer:TABLE": Subject("downstream", "the address that writes it"),
        # The DDL service.
        "/KEY": Subject("pd, store", "its value in etcd or in the cluster's store"),
        "assigned:CLUSTER": Subject("worker", "the worker's name"),
        "leader": Subject("worker", "the revision of its campaign"),
        "ddl-owner:CLUSTER": Subject("worker, tidb-server", "its ddl_id"),
        "schema": Subject("tidb-server", "the version that it serves with"),
        "transaction:TS": _states("tidb-server", "open, committed"),
        # PD.
        "operator:NUMBER": _states(
            "region", "created, started, success, canceled, replaced, expired, timeout"),
        "store:ID": Subject("store", "its state as pd-ctl prints it"),
    }
)  # fmt: skip
"""What rows of kind ``changed`` are about, with who writes them."""

FULL, EVENTS, CHANGES, NOTHING = LEVELS = "full", "events", "changes", "nothing"
"""Everything; all but timers; no messages either (they are counted); nothing."""

_MESSAGES = frozenset({"sent", "received", "lost", "resent", "refused"})


class Row(NamedTuple):
    """One row of :data:`ticdc_lab.simulate.trace.TRACE`, its message still an object."""

    step: int
    time_us: int
    node: str
    kind: str
    peer: str | None = None
    message: Any = None
    message_id: int | None = None
    subject: str | None = None
    before: str | int | Reason | None = None
    after: str | int | Reason | None = None
    because: str | Reason | None = None
    rejected: tuple[tuple[str, str], ...] = ()


class Recorder:
    """The rows of one run.

    ``run``: the name in column ``run``. ``level``: one of :data:`LEVELS`.
    """

    def __init__(self, run: str, level: str = EVENTS) -> None:
        self.run = run
        self.level = level
        self.rows: list[Row] = []
        self.messages = level in (FULL, EVENTS)
        self.timers = level == FULL
        self.any = level != NOTHING

    def add(self, row: Row) -> None:
        """Keep a row, unless the level leaves its kind out."""
        if self.any and (self.messages or row.kind not in _MESSAGES):
            self.rows.append(row)

    def table(self) -> pa.Table:
        """Give all rows so far as an Arrow table (:data:`ticdc_lab.simulate.trace.TRACE`)."""
        return as_table(self.run, self.rows)


def as_table(run: str, rows: Iterable[Row]) -> pa.Table:
    """Write rows as an Arrow table."""
    found = list(rows)
    columns: dict[str, list[Any]] = {
        "run": [run] * len(found),
        "step": [r.step for r in found],
        "time_us": [r.time_us for r in found],
        "node": [r.node for r in found],
        "kind": [r.kind for r in found],
        "peer": [r.peer for r in found],
        "message": [name_of(r.message) for r in found],
        "message_id": [r.message_id for r in found],
        "detail": [detail_of(r.message) for r in found],
        "subject": [r.subject for r in found],
        "before": [_text(r.before) for r in found],
        "after": [_text(r.after) for r in found],
        "because": [_text(r.because or None) for r in found],
        "rejected": [[{"candidate": c, "because": b} for c, b in r.rejected] for r in found],
        "reason": [_value(r.after if isinstance(r.after, Reason) else r.because) for r in found],
    }
    return pa.table(columns, schema=TRACE)


def name_of(message: Any) -> str | None:
    """Give the name of a message, a timer or a command: its class, or what it is."""
    if message is None or isinstance(message, str):
        return message
    return type(message).__name__ if hasattr(message, "_fields") else str(message)


def detail_of(message: Any) -> str | None:
    """Give a message's fields as JSON, under the protocol's names (``owner-rev`` for ``owner_rev``)."""
    if not hasattr(message, "_fields"):
        return None
    return orjson.dumps(_plain(message), option=orjson.OPT_NON_STR_KEYS | orjson.OPT_SORT_KEYS).decode()


def _plain(value: Any) -> Any:
    if hasattr(value, "_fields"):
        return {name.replace("_", "-"): _plain(v) for name, v in zip(value._fields, value, strict=True)}
    if isinstance(value, dict) or hasattr(value, "mutate"):
        return {str(k): _plain(v) for k, v in sorted(value.items(), key=lambda e: str(e[0]))}
    if isinstance(value, Reason):
        return {"kind": value.kind, "name": value.name, "since-us": value.since_us, "words": value.words}
    if isinstance(value, (frozenset, set)):
        return sorted((_plain(v) for v in value), key=str)
    if isinstance(value, (tuple, list)):
        return [_plain(v) for v in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _text(value: str | int | Reason | None) -> str | None:
    return None if value is None else str(value)


def _value(of: str | int | Reason | None) -> dict[str, Any] | None:
    return {"kind": of.kind, "name": of.name, "since_us": of.since_us} if isinstance(of, Reason) else None


_BATCH = 10_000


def needs_spark(out: str) -> bool:
    """Whether :func:`write_trace` makes a Delta table of a path."""
    return not out.endswith(".parquet") and names_table(out)


def write_trace(trace: pa.Table, out: str, spark: SparkSession | None = None) -> None:
    """Write a trace (:data:`ticdc_lab.simulate.trace.TRACE`); what is there is replaced.

    ``trace``: of one run, or of several. ``out``: ``*.parquet``: one file. ``DIR/``, ``DIR.delta``, a folder that is
    there: a Delta table, for which ``spark`` is needed. Anything else: a file of JSON Lines. The same trace gives the
    same bytes.

    Raises SourceError: the folder that ``out`` should lie in does not exist.
    """
    if needs_spark(out):
        from ticdc_lab.engine.delta_table import replace_table  # it brings PySpark

        assert spark is not None
        replace_table(spark.createDataFrame(trace), out)
        return
    if not Path(out).absolute().parent.is_dir():
        raise missing_folder(out)
    if out.endswith(".parquet"):
        pq.write_table(trace, out)
        return
    with Path(out).open("wb") as target:
        for batch in trace.to_batches(max_chunksize=_BATCH):
            for row in batch.to_pylist():
                target.write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))
