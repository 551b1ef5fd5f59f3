"""What a scenario file can let happen at a moment: the faults that every model knows.

The first field of a class is the value beside the event's name, the others stand beside it: ``crash: capture-1``,
``partition: [capture-1]`` with ``for: 2s``. The type of a field says how it is read (:mod:`.planned_reading`);
in the file its name ends without ``_us`` and without ``_``. Its method ``apply`` says what it is to the kernel. What a
model adds are classes of the same form.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ticdc_lab.simulate import faults as kernel

if TYPE_CHECKING:
    from ticdc_lab.simulate.scenario import Scenario

Node: TypeAlias = str
"""The name of a node of the scenario."""

Nodes: TypeAlias = tuple[str, ...]
"""Names of nodes; a single one needs no list."""

NewNode: TypeAlias = str
"""A name that no other node has."""

Text: TypeAlias = str
"""Any text."""

TableId: TypeAlias = int
"""A table that the scenario has or adds."""

NewTableId: TypeAlias = int
"""A table that the scenario adds; one that was dropped may come again."""

TableIds: TypeAlias = tuple[int, ...]
"""Tables that the scenario has or adds; a single one needs no list."""

ChangefeedName: TypeAlias = str
"""A changefeed that the scenario has or creates."""

NewChangefeed: TypeAlias = str
"""A name that no other changefeed has, nor had."""

SinkKind: TypeAlias = Literal["kafka", "mysql"]

MessageKind: TypeAlias = str
"""The name of a message of the variant."""

Disk: TypeAlias = str
"""Of :data:`ticdc_lab.simulate.faults.DISKS`."""

Duration: TypeAlias = int
"""µs."""

SignedDuration: TypeAlias = int
"""µs; may be negative."""

Share: TypeAlias = Fraction
"""A probability."""

Distribution: TypeAlias = Literal["fixed", "uniform", "exponential"]


@dataclass(frozen=True, slots=True)
class Delay:
    """How long a message is under way, µs.

    ``fixed``: always ``low_us``; ``uniform``: from ``low_us`` to ``high_us``; ``exponential``: ``low_us`` and, on
    average, ``high_us`` more.
    """

    kind: Distribution = "uniform"
    low_us: int = 500
    high_us: int = 2_000


@dataclass(frozen=True, slots=True)
class Crash:
    """A node stops at once and loses what it had in memory, unless it comes back with its state."""

    node: Node

    def apply(self, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
        """Give what it is to the kernel."""
        yield kernel.Crash(event.at_us, self.node)


@dataclass(frozen=True, slots=True)
class Restart:
    """A crashed node comes back, as a new one unless it keeps its state."""

    node: Node
    keep_state: bool = False

    def apply(self, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
        """Give what it is to the kernel."""
        yield kernel.Restart(event.at_us, self.node, self.keep_state)


@dataclass(frozen=True, slots=True)
class Pause:
    """A node does nothing for a while and loses nothing (a long garbage collection, a frozen machine)."""

    node: Node
    for_us: Duration | None = None

    def apply(self, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
        """Give what it is to the kernel."""
        resumed = [
            e.at_us for e in scenario.events
            if isinstance(e.what, Resume) and e.what.node == self.node and e.at_us > event.at_us
        ]  # fmt: skip
        until_us = min([*resumed, scenario.until_us + 1 if self.for_us is None else event.at_us + self.for_us])
        yield kernel.Pause(event.at_us, self.node, until_us - event.at_us)


@dataclass(frozen=True, slots=True)
class Resume:
    """A paused node goes on."""

    node: Node

    def apply(self, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
        """Give what it is to the kernel."""
        yield from ()


@dataclass(frozen=True, slots=True)
class Partition:
    """Messages from and to some nodes no longer arrive at the others, one way: only those from them.

    ``from_`` names the other side; every other node where it is silent.
    """

    nodes: Nodes
    from_: Nodes = ()
    one_way: bool = False
    for_us: Duration | None = None

    def apply(self, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
        """Give what it is to the kernel."""
        for a, b in self.pairs(scenario):
            yield kernel.Part(event.at_us, a, b, self.one_way, self.for_us)

    def pairs(self, scenario: Scenario) -> list[tuple[str, str]]:
        """Give the nodes of both sides."""
        others = self.from_ or tuple(n for n in scenario.everyone if n not in self.nodes)
        return list(product(self.nodes, others))


@dataclass(frozen=True, slots=True)
class Heal:
    """Partitions end: all, or those that some nodes are in."""

    nodes: Nodes = ()

    def apply(self, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
        """Give what it is to the kernel."""
        cuts = [e.what for e in scenario.events if isinstance(e.what, Partition) and e.at_us <= event.at_us]
        for a, b in dict.fromkeys(pair for cut in cuts for pair in cut.pairs(scenario)):
            if not self.nodes or {a, b} & set(self.nodes):
                yield kernel.Heal(event.at_us, a, b)


@dataclass(frozen=True, slots=True)
class Lose:
    """The next messages of a kind do not arrive."""

    message: MessageKind
    from_: Node | None = None
    to: Node | None = None
    count: int = 1

    def apply(self, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
        """Give what it is to the kernel."""
        yield kernel.Lose(event.at_us, self.message, self.from_, self.to, self.count)


@dataclass(frozen=True, slots=True)
class Refuse:
    """The transport of a node takes no message to another one for a while: it says "try again"."""

    from_: Node
    to: Node
    for_us: Duration

    def apply(self, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
        """Give what it is to the kernel."""
        yield kernel.Refuse(event.at_us, self.from_, self.to, self.for_us)


@dataclass(frozen=True, slots=True)
class Link:
    """The way from a node to another one is another one from now on; what is silent is as in the whole network."""

    from_: Node
    to: Node
    delay: Delay | None = None
    loss: Share | None = None
    duplicate: Share | None = None
    reorder: Share | None = None
    for_us: Duration | None = None

    def apply(self, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
        """Give what it is to the kernel."""
        yield kernel.Relink(event.at_us, self.from_, self.to, scenario.network.link(self), self.for_us)


@dataclass(frozen=True, slots=True)
class Clock:
    """The clock of a node is ahead by an offset, or runs faster by a share of its time."""

    node: Node
    offset_us: SignedDuration = 0
    drift: Fraction = Fraction(0)

    def apply(self, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
        """Give what it is to the kernel."""
        yield kernel.Skew(event.at_us, self.node, self.offset_us, int(self.drift * 1_000_000))


FAULTS: dict[str, type] = {
    "crash": Crash,
    "restart": Restart,
    "pause": Pause,
    "resume": Resume,
    "partition": Partition,
    "heal": Heal,
    "lose": Lose,
    "refuse": Refuse,
    "link": Link,
    "clock": Clock,
}


@dataclass(frozen=True, slots=True)
class Planned:
    """Something that happens at a moment.

    Attributes
    ----------
    name
        How assertions speak of it: ``crash capture-1``, or the ``name`` it is given.
    what
        One of :data:`FAULTS`, or of the model's own.
    line
        Where it stands in the file.
    """

    at_us: int
    name: str
    what: Any
    line: int


@dataclass(frozen=True, slots=True)
class RandomFaults:
    """Faults at random moments, on average one in ``every_us``; all are over at ``until_us``."""

    faults: tuple[str, ...]
    every_us: int
    until_us: int
    from_us: int = 0
    line: int = 0
