"""What happens to a cluster from outside: words to PD, stores that stop or join, load that comes or goes."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from ticdc_lab.simulate.pd.rules import Rule
from ticdc_lab.simulate.pd.world.policy import Policy
from ticdc_lab.simulate.pd.world.start import StoreStart


class Pdctl(NamedTuple):
    """Words to PD, as one types them after ``pd-ctl``: ``store delete 4``."""

    words: str


class StopStore(NamedTuple):
    """A store falls silent; leaders say at once that its peers have been down for ``down_s``, if given."""

    store: int
    down_s: float | None = None


class ResumeStore(NamedTuple):
    """A silent store comes back with all its peers."""

    store: int


class StartStore(NamedTuple):
    """A store joins: one of the start that was not started, by its id, or a new one."""

    store: int | StoreStart


class SetRules(NamedTuple):
    """Other placement rules; none: those that the settings make."""

    rules: tuple[Rule, ...]


class SetFlow(NamedTuple):
    """Regions are read or written at so many bytes a second from now on; keys and queries follow from bytes."""

    kind: str
    regions: tuple[int, ...]
    bytes_s: float


class SlowDisk(NamedTuple):
    """A store's disk gives clients and snapshots so many MiB/s from now on; None: what it gave at first."""

    store: int
    mib_s: float | None


class Grow(NamedTuple):
    """A region, or the one that its right end becomes, grows by so many MiB a tick; 0 ends it."""

    region: int
    mib_a_tick: float
    until_us: int = 1 << 60


class UsePolicy(NamedTuple):
    """A scheduler of that name works by another policy from now on, or a new one starts."""

    policy: Policy


Change: TypeAlias = Pdctl | StopStore | ResumeStore | StartStore | SetRules | SetFlow | SlowDisk | Grow | UsePolicy


class Timed(NamedTuple):
    """A change at a moment, µs."""

    at_us: int
    change: Change


class Happened(NamedTuple):
    """A change that happened, and what came of it: the answer to a command, or PD's refusal."""

    at_us: int
    change: Change
    answer: Any = None
    error: str = ""


def text_of(change: Change) -> str:
    """Tell a change in words."""
    match change:
        case Pdctl(words):
            return words
        case StopStore(store):
            return f"store {store} falls silent"
        case ResumeStore(store):
            return f"store {store} comes back"
        case StartStore(store):
            return f"store {store if isinstance(store, int) else store.id} joins"
        case SetRules(rules):
            return f"{len(rules)} placement rules"
        case SetFlow(kind, regions, bytes_s):
            return f"{len(regions)} regions: {kind} {bytes_s / (1 << 20):.1f} MiB/s"
        case SlowDisk(store, mib_s):
            return (
                f"the disk of store {store} is as before"
                if mib_s is None
                else f"the disk of store {store} gives {mib_s:g} MiB/s"
            )
        case Grow(region, mib):
            return f"region {region} grows by {mib} MiB a tick"
        case UsePolicy(policy):
            return f"policy {policy.name}"
