"""Who does what when the number of partitions changes: the owner, the processors, in milliseconds of the log's clock.

The procedure of TiCDC's design, and what it leaves open:

- The owner stops all processors and waits until they have paused. The design itself notes that the feedback for this is
  missing; ``design`` has it, ``no-feedback`` does without.
- The restart must begin at a checkpoint that every old partition has as its resolved_ts *before* the Admin event:
  consumers drop what they hold above that resolved_ts, and only what lies above the checkpoint is sent again. If the
  checkpoint has moved on in between, what lies between the two is lost. Here the owner broadcasts the global checkpoint
  until all have paused, so that the two are equal; without feedback they are not.
- The owner writes no DDL after its decision, and processors hold at the first that is not written yet.
- "All partitions" of the Admin event are those before and those after. Those that are given up learn that nothing
  follows; in the new ones it is the first message, so that a consumer that finds such a partition by itself, or later
  from its beginning, knows that what follows lies behind the barrier.

``just-add`` is what happens without any procedure. TiCDC keeps the partition count of the changefeed's default topic
from its start (`partition-num` of the sink-uri, or what the topic had then), so that added partitions get no rows until
it restarts; of topics that a topic expression names, each node reads the count again every 10 minutes, each at
its own time, and uses it from the next row on (TiCDC, topic manager). No message informs a consumer.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ticdc_lab.errors import ContractError
from ticdc_lab.events import tso
from ticdc_lab.words import count

PROCEDURES = ("design", "no-feedback", "just-add")

Table = tuple[str, str]
"""Schema and table name."""


@dataclass(frozen=True, slots=True)
class Timing:
    """What a recorded log cannot show; assumptions, to be replaced by what was measured on a cluster.

    Attributes
    ----------
    stop_delay_ms
        Least and greatest time until a processor hears what the owner decided (with ``just-add``: until its producer
        sees the new partitions); drawn for each from ``seed``.
    report_ms
        Time of the feedback that a processor has paused.
    admin_ms
        Time to broadcast the Admin event.
    restart_ms
        Time from then on until processors write again.
    notice_ms
        With ``just-add``: until a consumer sees new partitions; 5 minutes is Kafka's ``metadata.max.age.ms``.
    captures
        Processors that share the tables; None is one for each table.
    seed
        Of the random numbers.
    """

    stop_delay_ms: tuple[int, int] = (50, 2_000)
    report_ms: int = 50
    admin_ms: int = 20
    restart_ms: int = 1_000
    notice_ms: int = 300_000
    captures: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        low, high = self.stop_delay_ms
        if not 1 <= low <= high:
            raise ContractError(f"stop_delay_ms is {self.stop_delay_ms}; expected 1 <= least <= greatest.")
        for name in ("report_ms", "admin_ms", "restart_ms", "notice_ms"):
            if getattr(self, name) < 1:
                raise ContractError(f"{name} is {getattr(self, name)}; expected at least 1 ms.")
        if self.captures is not None and self.captures < 1:
            raise ContractError(f"captures is {self.captures}; expected at least 1.")


@dataclass(frozen=True, slots=True)
class Processor:
    """What one processor does: writes its tables with the old count up to ``stop``, with the new from ``start_ms``."""

    name: str
    tables: tuple[Table, ...]
    stop_ms: int
    stop: int
    """Greatest commit_ts (TSO) that it writes with the old count."""
    start_ms: int


@dataclass(frozen=True, slots=True)
class Facts:
    """What the plan needs of a log; as small as its tables."""

    # ``tables``, ``topics``, ``protocol``, ``partitions``: what the log contains; ``partitions`` as it was recorded.
    tables: tuple[Table, ...]
    topics: tuple[str, ...]
    protocol: str
    partitions: int
    # ``first_ts``, ``last_ts``: of its rows.
    first_ts: int
    last_ts: int

    @property
    def middle(self) -> int:
        """A TSO in the middle of the rows."""
        return (self.first_ts + self.last_ts) // 2


@dataclass(frozen=True, slots=True)
class OwnerMarks:
    """The owner's marks around the decision: ``resolved``, the greatest value broadcast by then (0: none), the later
    ones in order, and the first ``ddl`` above ``resolved`` (None: none).
    """

    resolved: int
    later: tuple[int, ...] = ()
    ddl: int | None = None


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """A change of the number of partitions, decided.

    Attributes
    ----------
    at
        TSO at which the owner decides, or partitions are added.
    resolved, checkpoint
        TSO: what every old partition has as its resolved_ts before the Admin event, and where all tasks start again.
    admin_ms, start_ms
        When the Admin event is in all partitions (None: there is none), and when the owner resumes.
    owner
        With ``just-add``: the greatest mark (TSO) that the owner sends to the old partitions only.
    ddl
        First DDL (TSO) that is not written when it is decided; None without one.
    """

    procedure: str
    before: int
    after: int
    at: int
    processors: tuple[Processor, ...]
    resolved: int
    checkpoint: int
    admin_ms: int | None
    start_ms: int
    owner: int
    ddl: int | None
    facts: Facts
    timing: Timing = field(default_factory=Timing)

    @property
    def at_ms(self) -> int:
        """When it is decided."""
        return tso.physical_ms(self.at)

    @property
    def running_ms(self) -> int:
        """When the last processor writes with the new count."""
        return max((p.start_ms for p in self.processors), default=self.start_ms)

    @property
    def partitions(self) -> int:
        """Partitions that exist while it happens."""
        return max(self.before, self.after)

    @property
    def pause_ms(self) -> dict[str, int]:
        """The wall by its parts, in milliseconds; it begins with the decision and ends when rows are written again."""
        if self.admin_ms is None:
            return {"waiting": 0, "admin": 0, "restart": 0}
        sent = self.admin_ms - self.timing.admin_ms
        return {
            "waiting": sent - self.at_ms,
            "admin": self.timing.admin_ms,
            "restart": min(p.start_ms for p in self.processors) - self.admin_ms if self.processors else 0,
        }

    def as_dict(self) -> dict[str, Any]:
        """What was decided, by name, without the facts of the log."""
        named = {n: getattr(self, n) for n in ("procedure", "before", "after", "at", "resolved", "checkpoint")}
        times = {"at_ms": self.at_ms, "admin_ms": self.admin_ms, "start_ms": self.start_ms}
        return named | times | {"processors": [asdict(p) for p in self.processors]}

    def sentences(self) -> list[str]:
        """The plan in words."""
        what = f"{self.procedure}: from {self.before} to {self.after} partitions at {tso.tso_words(self.at)}"
        n = len(self.processors)
        if self.admin_ms is None:
            return [f"{what}. Each of {count(n, 'processor')} uses them on its own, {self._heard()} ms later."]
        return [
            f"{what}. The order to stop reaches {count(n, 'processor')} {self._heard()} ms later.",
            f"The Admin event follows {self.admin_ms - self.at_ms} ms later, at resolved_ts "
            f"{tso.tso_words(self.resolved)}. The changefeed resumes at checkpoint {tso.tso_words(self.checkpoint)}, "
            f"{self.start_ms - self.at_ms} ms later.",
        ]

    def _heard(self) -> str:
        heard = [p.stop_ms - self.at_ms for p in self.processors]
        return f"{min(heard)} to {max(heard)}" if heard else "0"


def decide(
    facts: Facts,
    marks_at: OwnerMarks,
    *,
    procedure: str,
    before: int,
    after: int,
    at: int,
    timing: Timing,
) -> PartitionPlan:
    """Plan when each one acts.

    ``facts``, ``marks_at``: of the log; ``marks_at.later`` up to the last stop of :func:`delays_of`. ``procedure``: one
    of :data:`PROCEDURES`. ``before``, ``after``: numbers of partitions. ``at``: TSO of the decision. ``timing``: see
    :class:`Timing`. Raises ContractError: an unknown procedure, counts below 1 or equal, or fewer partitions with
    ``just-add``: Kafka removes none.
    """
    _check(procedure, before, after)
    at_ms = tso.physical_ms(at)
    shares, delays = _shares(facts.tables, timing.captures), delays_of(facts, timing)
    stops_ms = [at_ms + d for d in delays[1:]]
    stops = [max(tso.compose(ms), at) for ms in stops_ms]
    owner = max(tso.compose(at_ms + delays[0]), at)
    ddl = None if procedure == "just-add" else marks_at.ddl
    if ddl is not None:
        stops = [min(stop, ddl) for stop in stops]
    last_ms = max(stops_ms, default=at_ms)
    if procedure == "just-add":
        admin_ms, start_ms, checkpoint, resolved = None, at_ms, 0, 0
    elif procedure == "design":
        admin_ms = last_ms + timing.report_ms + timing.admin_ms
        start_ms = admin_ms + timing.restart_ms
        checkpoint = resolved = _checkpoint(marks_at, [*stops, tso.compose(start_ms)])
    else:
        admin_ms = at_ms + timing.admin_ms
        start_ms = admin_ms + timing.restart_ms
        resolved, checkpoint = marks_at.resolved, _checkpoint(marks_at, [*stops, tso.compose(start_ms)])
    processors = tuple(
        Processor(name, tables, ms, stop, ms if procedure == "just-add" else max(start_ms, ms + 1))
        for (name, tables), ms, stop in zip(shares, stops_ms, stops, strict=True)
    )
    return PartitionPlan(
        procedure, before, after, at, processors, resolved, checkpoint, admin_ms, start_ms, owner, ddl, facts, timing
    )


def delays_of(facts: Facts, timing: Timing) -> list[int]:
    """Milliseconds until the owner (first) and each processor act; the same for the same seed."""
    draw = random.Random(timing.seed)
    return [draw.randint(*timing.stop_delay_ms) for _ in range(1 + len(_shares(facts.tables, timing.captures)))]


def _shares(tables: Sequence[Table], captures: int | None) -> list[tuple[str, tuple[Table, ...]]]:
    """The tables of each processor, with its name."""
    ordered = sorted(tables)
    if captures is None:
        return [(f"{schema}.{table}", ((schema, table),)) for schema, table in ordered]
    return [(f"capture {i}", tuple(ordered[i::captures])) for i in range(min(captures, len(ordered)))]


def _checkpoint(marks_at: OwnerMarks, limits: Sequence[int]) -> int:
    """The greatest value that the global checkpoint reaches: below the first DDL that is not written."""
    most = min(limits)
    reached = [v for v in marks_at.later if v <= most and (marks_at.ddl is None or v < marks_at.ddl)]
    return max([marks_at.resolved, *reached])


def _check(procedure: str, before: int, after: int) -> None:
    if procedure not in PROCEDURES:
        raise ContractError(f"Unknown procedure {procedure!r}; expected one of {', '.join(PROCEDURES)}.")
    if before < 1 or after < 1 or before == after:
        raise ContractError(
            f"From {before} to {after} partitions; expected two different numbers, both at least 1.",
            hint="--after is the new number of partitions, --before the old one (default: as recorded).",
        )
    if procedure == "just-add" and after < before:
        raise ContractError(
            f"Kafka cannot remove partitions, so a topic cannot go from {before} to {after}.",
            hint="Shrinking needs the procedure `design`: the old partitions stay, and are no longer written to.",
        )
