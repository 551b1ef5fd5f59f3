"""Planted bugs of v2: each breaks one rule, and something must catch it, or our checks cannot fail."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ticdc_lab.simulate.faults import Chaos, Fault, Relink
from ticdc_lab.simulate.network import Link
from ticdc_lab.simulate.scheduler.monitor import DOUBLE, LOST, MONOTONE
from ticdc_lab.simulate.scheduler.variants import SchedulerSettings
from ticdc_lab.simulate.scheduler.world import Bounds

ANSWERS = "Responses Match Orders"

HASTY = SchedulerSettings(captures=3, tables=3, ttl_us=2_000_000, margin_us=400_000, tick_us=100_000, poll_us=100_000)
"""Sessions that end soon, so that seconds of faults end many."""

CUT_OFF = Chaos(15_000_000, 500_000, ("pause", "part"))
"""Captures that hang and links that break: what ends sessions of captures that live."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A planted bug.

    Attributes
    ----------
    bug
        Its name in :data:`planted_schedulers.V2`, or of the mutant where :attr:`settings` are the bug.
    breaks
        The rule, in a sentence.
    invariant
        What catches it.
    bounds
        The small world in which every order of events is tried; None where only runs of whole captures show it.
    settings, chaos, faults
        The runs that show it otherwise: some seed of this chaos does, or every run with these faults.
    """

    bug: str
    breaks: str
    invariant: str
    bounds: Bounds | None = None
    settings: SchedulerSettings = HASTY
    chaos: Chaos | None = CUT_OFF
    faults: tuple[Fault, ...] = ()


_ONE = Bounds(captures=1, tables=2)
_TWO = Bounds(captures=2, tables=1, moments=0)
_JOINING = Bounds(captures=2, tables=2, moments=0, joins=1)

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "obeys_stale_owner",
        "A processor rejects an owner-rev below the highest it has heard.",
        DOUBLE,
        replace(_TWO, owner_changes=1),
    ),
    Mutant(
        "obeys_old_epoch",
        "A processor ignores orders that were given to its former incarnation.",
        ANSWERS,
        replace(_TWO, restarts=1),
    ),
    Mutant("keeps_epoch", "Every Sync begins an epoch.", ANSWERS, replace(_TWO, restarts=1)),
    Mutant(
        "answers_at_once", "A processor answers a removal when the table has stopped, not before.", ANSWERS, _JOINING
    ),
    Mutant(
        "reports_the_newest",
        "A processor's watermarks are the lowest of all its tables, also of those that catch up.",
        LOST,
        _ONE,
    ),
    Mutant(
        "tells_all_running",
        "Sync says which tables are being added and removed.",
        ANSWERS,
        replace(_TWO, owner_changes=1),
    ),
    Mutant(
        "dispatches_before_sync",
        "An owner dispatches nothing until every registered capture has synced.",
        DOUBLE,
        replace(_TWO, owner_changes=1),
    ),
    Mutant(
        "ignores_running_of_sync",
        "What runs on a capture that syncs is not dispatched again.",
        ANSWERS,
        replace(_TWO, owner_changes=1),
    ),
    Mutant("skips_minimum", "The global checkpoint is the lowest of all captures with tables.", LOST, Bounds(tables=2)),
    Mutant(
        "keeps_old_watermark",
        "What a capture reported before a table was added to it does not count for that table.",
        LOST,
        Bounds(joins=1),
    ),
    Mutant("keeps_the_lost", "The tables of a capture that is gone are dispatched again.", LOST, Bounds(crashes=1)),
    Mutant(
        "starts_at_the_newest",
        "A table starts from the global checkpoint, whatever single captures have reported.",
        LOST,
        replace(_ONE, restarts=1),
    ),
    Mutant("advances_in_flight", "The checkpoint stands while any table is being added or removed.", LOST, _ONE),
    Mutant("forgets_removals", "A table is added elsewhere only when its removal has been answered.", DOUBLE, _JOINING),
    Mutant(
        "forgets_monotony",
        "The owner persists no checkpoint below the one it knows.",
        MONOTONE,
        Bounds(tables=1, crashes=1),
    ),
    Mutant(
        "trusts_every_owner",
        "etcd takes the status from the current owner only.",
        MONOTONE,
        chaos=None,
        faults=(Relink(3_000_000, "capture-1", "etcd", Link((6_500_000, 6_500_000)), for_us=1_500_000),),
    ),
    Mutant(
        "margin 0 with stop lag",
        "A capture writes nothing any more when etcd may have given up its session.",
        DOUBLE,
        settings=replace(HASTY, margin_us=0, stop_lag_us=800_000),
    ),
)
"""By what they break: processors, owners, and what stands around them.

``takes_any_response`` is not among them: on links that keep their order no response of an old epoch comes in
after the Sync of the new one; the golden case v2-18 shows that it is void.
"""

REPEATED = Bounds(captures=2, tables=1, moments=0, joins=1, doubled=1, topics=True)
"""An Announce comes twice: an epoch that only a restart or a new owner began would not be enough."""

STOPS_LATE = Bounds(tables=1, moments=0, expiries=1, stops_at_once=False)
"""The design's second assumption does not hold: a capture writes on until it notices that its session has ended."""

TWO_OWNERS = Bounds(captures=3, tables=1, moments=0, owner_changes=1, joins=1, at_once=True, one_owner=False)
"""The design's first assumption does not hold: the old owner is elected still, and hears of a capture that joins."""
