"""What every simulated node is: a pure function from a state and an event to the next state and what comes out.

A machine owns neither time, nor the network, nor chance: :class:`Now` gives it what it may know of them, and the loop
(:mod:`ticdc_lab.simulate.kernel`) carries out its outputs. States are immutable (frozen dataclasses and
:class:`immutables.Map`), so a snapshot of a run costs nothing and the explorer can compare and hash them.
A Map of strings is never iterated unsorted: the hash of a string differs from process to process.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, fields
from inspect import ismemberdescriptor
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, TypeVar, cast, runtime_checkable

from ticdc_lab.errors import ContractError

Address: TypeAlias = str
"""Where messages go: the name of a node, and from its second life on its number behind a dot (``capture-1.2``)."""


def node_of(address: Address) -> str:
    """Give the name of the node of an address: ``capture-1`` of ``capture-1.2``."""
    name, dot, life = address.rpartition(".")
    return name if dot and life.isdigit() else address


def life_of(address: Address) -> int:
    """Give the number of a node's life, 1 for the first."""
    return int(address.removeprefix(node_of(address)).lstrip(".") or 1)


made = tuple.__new__
"""Makes a named tuple in half the time of its own constructor: ``made(Send, (to, message))``."""

C = TypeVar("C", bound=type[Any])


def stepped(kind: C) -> C:
    """Let a named tuple that every step replaces do that in two fifths of the time: ``_replace`` goes by names."""
    names = kind._fields
    kind._replace = _written(
        f"def _replace(self, /, {', '.join(f'{n}=AS_IT_IS' for n in names)}):\n"
        f"    {''.join(f'OWN_{n}, ' for n in names)} = self\n"
        f"    return NEW(KIND, ({''.join(f'OWN_{n} if {n} is AS_IT_IS else {n}, ' for n in names)}))\n",
        {"KIND": kind, "NEW": tuple.__new__},
    )
    return kind


if TYPE_CHECKING:
    from dataclasses import replace as replace
else:

    def replace(one, /, **changes):
        """Do what :func:`dataclasses.replace` does, in two fifths of the time where a class has slots."""
        kind = type(one)
        replaced = _REPLACED.get(kind) or _REPLACED.setdefault(kind, _replaced(kind))
        return replaced(one, **changes)


_REPLACED: dict[type[Any], Callable[..., Any]] = {}


def _replaced(kind: type[Any]) -> Callable[..., Any]:
    """Write what replaces fields of a data class, by the class's own descriptors of its slots."""
    own = fields(kind)
    if hasattr(kind, "__post_init__") or not all(
        f.init and ismemberdescriptor(getattr(kind, f.name, None)) for f in own
    ):
        return dataclasses.replace
    return _written(
        f"def replaced(self, /, {', '.join(f'{f.name}=AS_IT_IS' for f in own)}):\n"
        "    made = NEW(KIND)\n"
        + "".join(f"    SET_{f.name}(made, self.{f.name} if {f.name} is AS_IT_IS else {f.name})\n" for f in own)
        + "    return made\n",
        {"KIND": kind, "NEW": object.__new__, **{f"SET_{f.name}": getattr(kind, f.name).__set__ for f in own}},
    )


def _written(text: str, known: dict[str, Any]) -> Callable[..., Any]:
    """Compile the one function of a text; what it knows beside its fields is in capitals, as no field is."""
    made: dict[str, Any] = {}
    exec(text, {"AS_IT_IS": object(), **known}, made)
    (function,) = made.values()
    return cast("Callable[..., Any]", function)


NO_ONE: frozenset[Address] = frozenset()


class Now(NamedTuple):
    """What a node can see of the world besides the event."""

    at_us: int  # virtual time, µs: as in the upstream's TSO
    # Peers to which its transport takes no message at this moment ("try again"): what is sent to them is not sent
    refused: frozenset[Address] = NO_ONE
    # The order in which equals are taken (captures of one load, tables of one batch); the smaller name where this is
    # silent. The explorer tries every order, a run has none.
    prefer: tuple[Hashable, ...] = ()
    skew_us: int = 0  # how far the node's own clock, by which it judges leases, is ahead of virtual time


class Received(NamedTuple):
    """A message came in."""

    sender: Address
    message: Any


class ReceivedMany(NamedTuple):
    """A stretch of messages of one sender came in at once: as if one after another."""

    sender: Address
    messages: tuple[Any, ...]


class Fired(NamedTuple):
    """A timer that the machine has set."""

    name: Hashable


class Asked(NamedTuple):
    """A user, a load or a fault asks the node itself for something; ``command`` is of the model."""

    command: Any


Event: TypeAlias = Received | ReceivedMany | Fired | Asked


class Send(NamedTuple):
    """Give a message to the transport."""

    to: Address
    message: Any


class Wake(NamedTuple):
    """Fire a timer; one of the same name that still runs is replaced."""

    after_us: int
    name: Hashable


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a machine waits, refuses or chose, as a value: its words are made once, for people; no code reads them."""

    kind: str  # what it is about: one of :data:`REASONS`
    name: str  # which one: ``7``, ``5[a,b)``, ``capture-2``; empty where there are several or none
    words: str  # a sentence or a part of one
    # Since when, µs of virtual time, where the machine knows it. It does not count when reasons are compared.
    since_us: int | None = field(default=None, compare=False)
    # Whether nothing proceeds; else it only names what is the lowest or the slowest
    blocks: bool = field(default=True, compare=False)

    def __str__(self) -> str:
        return self.words


REASONS = TABLE, CAPTURE, BARRIER, OTHER, NOT_OWNER, KEPT_STATE = (
    "table", "capture", "barrier", "other", "not the owner", "kept state",
)  # fmt: skip
"""Kinds of :class:`Reason`: the first four hold a checkpoint, the others name the kind of a trace's row."""


class Changed(NamedTuple):
    """The state of something that people know by name is another one now.

    ``subject`` is ``table:7``, ``checkpoint``, ``owner``, ...; ``before`` and ``after`` are short texts, integers or
    reasons, None where it did not exist; ``because`` is a sentence a user can read.
    """

    subject: str
    before: str | int | Reason | None
    after: str | int | Reason | None
    because: str = ""


class Decided(NamedTuple):
    """A choice, also the one to do nothing.

    ``chosen`` is None where nothing was done; ``rejected`` holds (candidate, why not) of those that were looked at.
    """

    subject: str
    chosen: str | None
    because: str | Reason
    rejected: tuple[tuple[str, str], ...] = ()


class Ignored(NamedTuple):
    """A message had no effect, and why: stale owner, old epoch, unknown capture."""

    message: Any
    because: str | Reason


class Told(NamedTuple):
    """A requester gets the outcome; both are of the model."""

    command: Any
    outcome: Any


class Broken(NamedTuple):
    """The machine found something that its protocol excludes (the real code panics here); the run ends."""

    invariant: str
    because: str


class Exit(NamedTuple):
    """The process ends by itself and comes back fresh, under a new address, after a while."""

    after_us: int
    because: str


Output: TypeAlias = Send | Wake | Changed | Decided | Ignored | Told | Broken | Exit

S = TypeVar("S")


class Machine(Protocol[S]):
    """One kind of node."""

    def start(self, address: Address, now: Now) -> tuple[S, list[Output]]:
        """Give the state of a fresh node and what it does first."""
        ...

    def step(self, state: S, event: Event, now: Now) -> tuple[S, list[Output]]:
        """Take one event."""
        ...


@runtime_checkable
class OnDisk(Protocol):
    """A machine whose nodes keep state on a disk, and resume from it in their next life."""

    def again(self, address: Address, before: Any, disk: str, now: Now) -> tuple[Any, list[Output]]:
        """Give the state of a node whose last life ended with ``before``.

        ``disk`` is of :data:`ticdc_lab.simulate.faults.DISKS`.
        """
        ...


def not_taken(command: object, by: str) -> ContractError:
    """Refuse a command that a machine does not know: if it were passed over, its event would seem to have happened."""
    return ContractError(
        f"{by} does not take the command {type(command).__name__}.",
        hint="Ask a node that takes it. If this model has none, leave its event out: `reach` in the event's row.",
    )


def one_by_one(machine: Any, state: S, event: ReceivedMany, now: Now) -> tuple[S, list[Any]]:
    """Take a stretch of messages one after another."""
    outputs: list[Any] = []
    for message in event.messages:
        state, more = machine.step(state, Received(event.sender, message), now)
        outputs += more
    return state, outputs
