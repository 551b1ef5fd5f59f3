"""What a watch shows while it runs, as one value, and its metrics in Prometheus' text format.

Times are seconds: a TSO exceeds a float's 53 bits. Labels are guarantees, reasons, topics and partitions, nothing of a
row; a partition's series stay as long as it is watched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from ticdc_lab.audit import GUARANTEES
from ticdc_lab.events.arrays import NO_TS
from ticdc_lab.events.tso import physical_ms
from ticdc_lab.settings import MATCH
from ticdc_lab.sources.kafka_reading import Place
from ticdc_lab.watch.state import REASONS, WatchCounts

PREFIX = "ticdc_lab_"
DURATIONS_S = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
"""Bounds of the histogram of batches."""

SEVERITIES = ("error", "warning")


@dataclass(frozen=True, slots=True)
class PartitionView:
    """How far a partition is watched."""

    # ``read``, ``first``, ``end``: the next offset to read, None while its broker has not answered at all; the first
    # that the broker has, and where it ends, None if unknown.
    read: int | None
    first: int | None = None
    end: int | None = None
    resolved_ts: int = NO_TS  # its greatest watermark; NO_TS without one
    # When its last watermark was written, by the message's timestamp or, without one, by this machine's clock.
    watermark_ms: int | None = None
    lost: int = 0  # messages that the broker deleted before they were read; of a storage folder missing data files
    file: str | None = None  # of a storage folder the newest file that was read: its offsets are places in files
    # When its broker last answered, seconds since 1970; None where none was asked yet, or a source has none.
    answered_s: float | None = None


@dataclass(frozen=True, slots=True)
class WatchView:
    """A watch at one moment."""

    # ``source``, ``protocol``: what is watched.
    source: str = ""
    protocol: str = ""
    counts: WatchCounts = field(default_factory=WatchCounts)  # since it began, restarts included
    partitions: Mapping[Place, PartitionView] = field(default_factory=dict)  # each that is watched
    # By topic the least commit_ts above its resolved_ts; NO_TS where none is known.
    pending_ts: Mapping[str, int] = field(default_factory=dict)
    # By guarantee and severity how many findings were ever open; ``open`` how many are now.
    violations: Mapping[tuple[str, str], int] = field(default_factory=dict)
    open: Mapping[tuple[str, str], int] = field(default_factory=dict)
    not_watched: Mapping[str, str] = field(default_factory=dict)  # guarantees that are not, with the reason
    # Those that are watched and not judged of all rows, with the reason.
    unjudged: Mapping[str, str] = field(default_factory=dict)
    settings: Sequence[Mapping[str, str]] = ()  # of the changefeed, as ``ticdc-lab settings`` shows them
    notes: tuple[str, ...] = ()  # rules without effect, and keys whose text a DDL changes, a sentence each
    # Another protocol that messages in quarantine are in, and how many of those that were looked at.
    strangers: Mapping[str, int] = field(default_factory=dict)
    undocumented: int = 0  # findings whose messages could not be read again yet
    unsent: int = 0  # findings that a webhook has not taken yet
    # ``rows``, ``nbytes``: what the state remembers.
    rows: int = 0
    nbytes: int = 0
    # How many took at most each of :data:`DURATIONS_S`, and all; ``batches_s`` is their sum.
    batches: tuple[int, ...] = (0,) * (len(DURATIONS_S) + 1)
    batches_s: float = 0.0
    last_batch_s: float = 0.0  # when the last one was done, seconds since 1970; 0 for none
    caught_up: bool = False  # whether everything that the source has was read
    # Which partitions have no broker that answers while others are read, a sentence for each topic and broker.
    silent: tuple[str, ...] = ()
    trouble: str = (
        ""  # why nothing is read now, a sentence: the source does not answer, or the watch ended with an error
    )


@dataclass(frozen=True, slots=True)
class WatchSample:
    """How far a watch was at a moment: of some, one makes rates and curves."""

    at_s: float  # seconds since 1970
    # ``messages``, ``rows``: messages and row changes that were read by then.
    messages: int
    rows: int
    # By partition the age of its resolved_ts, seconds; partitions without a watermark have none.
    lag_s: Mapping[Place, float]

    @classmethod
    def of(cls, view: WatchView, at_s: float) -> WatchSample:
        """Of what a watch shows now."""
        lags = {
            at: at_s - physical_ms(of.resolved_ts) / 1000
            for at, of in view.partitions.items() if of.resolved_ts != NO_TS
        }  # fmt: skip
        return cls(at_s, view.counts.messages, view.counts.rows, lags)


@dataclass(frozen=True, slots=True)
class ComparedView:
    """A comparison of two sources at one moment; pairs are of the first source and of the other."""

    # ``protocols``, ``resolved_ts``: of both; NO_TS without a resolved_ts.
    protocols: tuple[str, str]
    resolved_ts: tuple[int, int] = (NO_TS, NO_TS)
    until_ts: int = NO_TS  # up to which commit_ts both are compared; NO_TS for not at all
    changes: int = 0  # row changes that were compared
    # By what differs how many row changes, and how many DDL statements.
    differences: Mapping[str, int] = field(default_factory=dict)
    # By reason, ``late`` or ``unread``, how many row changes, or messages, of both.
    not_compared: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    # ``nbytes``, ``last_batch_s``: as of :class:`WatchView`.
    nbytes: int = 0
    last_batch_s: float = 0.0
    silent: tuple[str, ...] = ()  # as of :class:`WatchView`
    # By side, topic and partition when its broker last answered, seconds since 1970.
    answered_s: Mapping[tuple[str, str, str], float] = field(default_factory=dict)


def metrics(view: WatchView | ComparedView) -> bytes:
    """Everything that a watch, or a comparison, counts and measures, in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(_Once(families(view) if isinstance(view, WatchView) else compared_families(view)))
    return generate_latest(registry)


class _Once(Collector):
    def __init__(self, found: Iterable[Metric]) -> None:
        self._found = list(found)

    def collect(self) -> Iterable[Metric]:
        return self._found


def families(view: WatchView) -> Iterator[Metric]:
    """The metrics of :func:`metrics`."""
    n, watched = view.counts, [name for name in GUARANTEES if name not in view.not_watched]
    severities = [(name, severity) for name in (*watched, MATCH) for severity in SEVERITIES]
    topics = sorted({topic for topic, _ in view.partitions})
    homes = {(t, str(p)): of for (t, p), of in sorted(view.partitions.items())}
    guarantee = ("guarantee",)
    yield _counter(
        "checked", "Events that a guarantee checked.", guarantee, {(g,): n.checked.get(g, 0) for g in watched}
    )
    yield _counter(
        "violations", "Findings.", ("guarantee", "severity"), {of: view.violations.get(of, 0) for of in severities}
    )
    yield _gauge(
        "open_findings", "Findings that are neither resolved, ignored nor withdrawn.", ("guarantee", "severity"),
        {of: view.open.get(of, 0) for of in severities},
    )  # fmt: skip
    yield _gauge("unsent_findings", "Findings that the webhook has not taken yet.", (), {(): view.unsent})
    yield _counter(
        "unchecked_row_changes", "Row changes that not all guarantees checked.", ("reason",),
        {(reason,): n.unchecked.get(reason, 0) for reason in REASONS},
    )  # fmt: skip
    yield _counter("redelivered_row_changes", "Row changes that were delivered again.", ("topic",),
                   {(t,): n.redelivered.get(t, 0) for t in topics})  # fmt: skip
    yield _counter("redelivery_episodes", "How often redeliveries began.", ("topic",),
                   {(t,): n.episodes.get(t, 0) for t in topics})  # fmt: skip
    of_home = ("topic", "partition")
    resolved: dict[tuple[str, ...], float] = {
        h: physical_ms(of.resolved_ts) / 1000 for h, of in homes.items() if of.resolved_ts != NO_TS
    }
    yield _gauge("resolved_timestamp_seconds", "The greatest watermark.", of_home, resolved)
    yield _gauge("last_watermark_timestamp_seconds", "When the last watermark was written.", of_home,
                 {h: of.watermark_ms / 1000 for h, of in homes.items() if of.watermark_ms is not None})  # fmt: skip
    pending = {(t,): view.pending_ts.get(t, NO_TS) for t in topics}
    yield _gauge(
        "oldest_pending_transaction_timestamp_seconds", "The oldest transaction above the resolved_ts; NaN for none.",
        ("topic",), {t: float("nan") if ts == NO_TS else physical_ms(ts) / 1000 for t, ts in pending.items()},
    )  # fmt: skip
    yield _counter("messages", "Messages that were read.", (), {(): n.messages})
    yield _counter("quarantined_messages", "Messages that could not be decoded.", ("reason",),
                   {(r,): k for r, k in sorted(n.quarantined.items())})  # fmt: skip
    yield _counter("unread_lost_messages", "Messages that the broker deleted before they were read.", of_home,
                   {h: of.lost for h, of in homes.items()})  # fmt: skip
    read: dict[tuple[str, ...], float] = {
        h: of.read for h, of in homes.items() if of.file is None and of.read is not None
    }
    yield _gauge("read_offset", "The next offset to read.", of_home, read)
    yield _gauge("log_start_offset", "The first offset that the broker has.", of_home,
                 {h: of.first for h, of in homes.items() if of.first is not None})  # fmt: skip
    yield _gauge("end_offset", "Where the broker's log ends.", of_home,
                 {h: of.end for h, of in homes.items() if of.end is not None})  # fmt: skip
    yield _gauge("last_answer_timestamp_seconds", "When the partition's broker last answered.", of_home,
                 {h: of.answered_s for h, of in homes.items() if of.answered_s is not None})  # fmt: skip
    yield _gauge("state_rows", "Rows whose last change is remembered.", (), {(): view.rows})
    yield _gauge("state_bytes", "Bytes of the state.", (), {(): view.nbytes})
    yield _counter("state_evicted_rows", "Rows that were forgotten, because the memory was full.", (), {(): n.evicted})
    yield _gauge("last_batch_timestamp_seconds", "When the last batch was done.", (), {(): view.last_batch_s})
    duration = HistogramMetricFamily(f"{PREFIX}batch_duration_seconds", "How long a batch took.")
    bounds = [*map(str, DURATIONS_S), "+Inf"]
    duration.add_metric((), [(b, k) for b, k in zip(bounds, view.batches, strict=True)], view.batches_s)
    yield duration
    yield _gauge(
        "build_info", "Which version watches.", ("version", "protocol"), {(version("ticdc_lab"), view.protocol): 1}
    )


def compared_families(view: ComparedView) -> Iterator[Metric]:
    """The metrics of a comparison; ``side`` is its first source, ``here``, or the other, ``there``."""
    resolved = zip(("here", "there"), view.resolved_ts, strict=True)
    yield _gauge("compare_resolved_timestamp_seconds", "The resolved_ts of each source.", ("side",),
                 {(side,): physical_ms(ts) / 1000 for side, ts in resolved if ts != NO_TS})  # fmt: skip
    until: dict[tuple[str, ...], float] = {(): physical_ms(view.until_ts) / 1000} if view.until_ts != NO_TS else {}
    yield _gauge("compared_until_timestamp_seconds", "Up to which commit_ts both are compared.", (), until)
    yield _gauge("compared_row_changes", "Row changes that were compared.", (), {(): view.changes})
    yield _gauge("compared_differences", "Row changes, and DDL statements, that differ.", ("kind",),
                 {(kind,): n for kind, n in view.differences.items()})  # fmt: skip
    yield _counter("not_compared", "Row changes that came too late, and messages that were not read.",
                   ("side", "reason"), {(side, reason): n for reason, of in view.not_compared.items()
                                        for side, n in zip(("here", "there"), of, strict=True)})  # fmt: skip
    yield _gauge("last_answer_timestamp_seconds", "When the partition's broker last answered.",
                 ("side", "topic", "partition"), {(*of,): s for of, s in view.answered_s.items()})  # fmt: skip
    yield _gauge("state_bytes", "Bytes of the state.", (), {(): view.nbytes})
    yield _gauge("last_batch_timestamp_seconds", "When the last batch was done.", (), {(): view.last_batch_s})
    yield _gauge(
        "build_info", "Which version watches.", ("version", "protocol"),
        {(version("ticdc_lab"), ", ".join(dict.fromkeys(view.protocols))): 1},
    )  # fmt: skip


def _counter(name: str, what: str, labels: tuple[str, ...], values: Mapping[tuple[str, ...], float]) -> Metric:
    family = CounterMetricFamily(PREFIX + name, what, labels=labels)
    for of, value in values.items():
        family.add_metric(of, value)
    return family


def _gauge(name: str, what: str, labels: tuple[str, ...], values: Mapping[tuple[str, ...], float]) -> Metric:
    family = GaugeMetricFamily(PREFIX + name, what, labels=labels)
    for of, value in values.items():
        family.add_metric(of, value)
    return family
