"""What a scenario file can let happen at a moment: the faults that every model knows.

The first field of a class is the value beside the event's name, the others stand beside it: ``crash: capture-1``,
``partition: [capture-1]`` with ``for: 2s``. The type of a field says how it is read (:mod:`.planned_reading`);
in the file its name ends without ``_us`` and without ``_``. What a model adds are classes of the same form.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, TypeAlias

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


@dataclass(frozen=True, slots=True)
class Restart:
    """A crashed node comes back, as a new one unless it keeps its state."""

    node: Node
    keep_state: bool = False


@dataclass(frozen=True, slots=True)
class Pause:
    """A node does nothing for a while and loses nothing (a long garbage collection, a frozen machine)."""

    node: Node
    for_us: Duration | None = None


@dataclass(frozen=True, slots=True)
class Resume:
    """A paused node goes on."""

    node: Node


@dataclass(frozen=True, slots=True)
class Partition:
    """Messages from and to some nodes no longer arrive at the others, one way: only those from them.

    ``from_`` names the other side; every other node where it is silent.
    """

    nodes: Nodes
    from_: Nodes = ()
    one_way: bool = False
    for_us: Duration | None = None


@dataclass(frozen=True, slots=True)
class Heal:
    """Partitions end: all, or those that some nodes are in."""

    nodes: Nodes = ()


@dataclass(frozen=True, slots=True)
class Lose:
    """The next messages of a kind do not arrive."""

    message: MessageKind
    from_: Node | None = None
    to: Node | None = None
    count: int = 1


@dataclass(frozen=True, slots=True)
class Refuse:
    """The transport of a node takes no message to another one for a while: it says "try again"."""

    from_: Node
    to: Node
    for_us: Duration


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


@dataclass(frozen=True, slots=True)
class Clock:
    """The clock of a node is ahead by an offset, or runs faster by a share of its time."""

    node: Node
    offset_us: SignedDuration = 0
    drift: Fraction = Fraction(0)


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
