"""Operators: what PD asks a region's leader to do, as steps; `pd_notes.md` section 8."""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import NamedTuple

from ticdc_lab.pd_core.config import Config


class Kind(IntFlag):
    """What an operator does and for whom; it takes up the limit of its lowest bit, see :func:`counted_as`."""

    ADMIN = 1
    AFFINITY = 2
    MERGE = 4
    RANGE = 8
    REPLICA = 16
    SPLIT = 32
    HOT_REGION = 64
    REGION = 128
    LEADER = 256
    WITNESS = 512


_NAMES = {kind: (kind.name or "").lower().replace("_", "-") for kind in Kind}


class Priority(IntEnum):
    """How urgent an operator is; its queue is drawn with weight 1, 4, 9 or 16."""

    LOW = 0
    MEDIUM = 1
    HIGH = 2
    URGENT = 3


class AddLearner(NamedTuple):
    """A new peer that takes no part in votes yet."""

    store: int
    witness: bool = False


class PromoteLearner(NamedTuple):
    """A learner becomes a voter."""

    store: int


class DemoteVoter(NamedTuple):
    """A voter becomes a learner; only within a joint change."""

    store: int


class RemovePeer(NamedTuple):
    """A peer goes."""

    store: int


class TransferLeader(NamedTuple):
    """Leadership moves."""

    from_store: int
    to_store: int


class EnterJoint(NamedTuple):
    """Promotions and demotions take effect together, both sets voting."""

    promote: tuple[int, ...]
    demote: tuple[int, ...]


class LeaveJoint(NamedTuple):
    """Only the new set votes."""

    promote: tuple[int, ...]
    demote: tuple[int, ...]


class BecomeWitness(NamedTuple):
    """A peer gives up its data and only votes."""

    store: int


class BecomeNonWitness(NamedTuple):
    """A witness gets the data."""

    store: int


class MergeRegion(NamedTuple):
    """One region is absorbed by its neighbour; ``passive`` on the neighbour's side."""

    source: int
    target: int
    passive: bool = False


class SplitRegion(NamedTuple):
    """A region is cut at keys, or where its store finds its middle (``scan``, ``approximate``)."""

    policy: str
    keys: tuple[bytes, ...] = ()


Step = (
    AddLearner | PromoteLearner | DemoteVoter | RemovePeer | TransferLeader | EnterJoint | LeaveJoint
    | BecomeWitness | BecomeNonWitness | MergeRegion | SplitRegion
)  # fmt: skip

_SLOW = AddLearner | MergeRegion | BecomeNonWitness
_FAST_S, _SLOW_S = 60.0, 600.0
_FAST_S_PER_MIB, _SLOW_S_PER_MIB = 0.6, 6.0


class Operator(NamedTuple):
    """A named list of steps for one region.

    ``brief`` is PD's own short form; ``source_score`` and ``target_score`` are those that were compared, where any
    were; ``size`` is the region's MiB, from which the time-out follows.
    """

    desc: str
    brief: str
    region: int
    kind: Kind
    steps: tuple[Step, ...]
    priority: Priority = Priority.MEDIUM
    size: float = 0
    source_score: float | None = None
    target_score: float | None = None


def kind_text(kind: Kind) -> str:
    """Give a kind as PD prints it: names from the lowest bit up."""
    return ",".join(name for flag, name in _NAMES.items() if kind & flag) or "unknown"


def limited_as(kind: Kind) -> Kind:
    """Give the kind whose limit counts: the lowest bit."""
    return Kind(kind & -kind)


def counted_as(kind: Kind, config: Config) -> tuple[Kind, ...]:
    """Give the kinds whose limits an operator takes up: one, or all of its kinds where PD is older (tikv/pd#3820)."""
    return (limited_as(kind),) if config.operators_count_once else tuple(k for k in Kind if kind & k)


def step_timeout_s(step: Step, size: float) -> float:
    """Give how long a step may take: snapshots are slow, changes of roles fast, both longer for large regions.

    A joint change has the time of one step more than it changes peers.
    """
    if isinstance(step, _SLOW):
        return max(_SLOW_S, _SLOW_S_PER_MIB * size)
    times = len(step.promote) + len(step.demote) + 1 if isinstance(step, EnterJoint | LeaveJoint) else 1
    return max(_FAST_S, _FAST_S_PER_MIB * size) * times


def timeout_s(operator: Operator) -> float:
    """Give how long an operator may run: the sum over its steps."""
    return sum(step_timeout_s(s, operator.size) for s in operator.steps)


def step_text(step: Step) -> str:
    """Give a step in a few words."""
    match step:
        case AddLearner(store, witness):
            return f"add-{'witness-' if witness else ''}learner {store}"
        case PromoteLearner(store):
            return f"promote {store}"
        case DemoteVoter(store):
            return f"demote {store}"
        case RemovePeer(store):
            return f"remove {store}"
        case TransferLeader(a, b):
            return f"transfer-leader {a}->{b}"
        case EnterJoint(up, down):
            return f"enter-joint promote {list(up)} demote {list(down)}"
        case LeaveJoint(up, down):
            return f"leave-joint promote {list(up)} demote {list(down)}"
        case MergeRegion(a, b, _):
            return f"merge {a}->{b}"
        case SplitRegion(policy, _):
            return f"split {policy}"
        case BecomeWitness(store):
            return f"witness {store}"
        case BecomeNonWitness(store):
            return f"non-witness {store}"
