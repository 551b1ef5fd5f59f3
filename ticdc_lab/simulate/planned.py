"""What a scenario file defines of the network, and can let happen at a moment: the faults that every model knows.

An event is one row of a table, an :class:`EventKind` by its name: a sentence, its fields with their types
(:mod:`.reading`), and what it is to the kernel. What a model adds are rows of its own table.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, make_dataclass
from fractions import Fraction
from itertools import product
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeAlias

from ticdc_lab.errors import ScenarioError
from ticdc_lab.simulate import faults as kernel
from ticdc_lab.simulate import network as net
from ticdc_lab.simulate.reading import Names, ReadBy, Reader, Value, field_types, is_kind, new_name, shown, yaml_name

if TYPE_CHECKING:
    from ticdc_lab.simulate.scenario import Scenario

Node: TypeAlias = Annotated[str, ReadBy(lambda value, names: names.node(value))]
"""The name of a node of the scenario."""

Nodes: TypeAlias = Annotated[tuple[str, ...], ReadBy(lambda value, names: tuple(map(names.node, one_or_more(value))))]
"""Names of nodes; a single one needs no list."""

NewNode: TypeAlias = Annotated[str, ReadBy(lambda value, names: new_name(value))]
"""A name that no other node has."""

Text: TypeAlias = str
"""Any text."""

TableId: TypeAlias = Annotated[int, ReadBy(lambda value, names: names.table(value))]
"""A table that the scenario has or adds."""

NewTableId: TypeAlias = Annotated[int, ReadBy(lambda value, names: value.integer())]
"""A table that the scenario adds; one that was dropped may come again."""

TableIds: TypeAlias = Annotated[
    tuple[int, ...], ReadBy(lambda value, names: tuple(map(names.table, one_or_more(value))))
]
"""Tables that the scenario has or adds; a single one needs no list."""

ChangefeedName: TypeAlias = Annotated[
    str, ReadBy(lambda value, names: value.choice(names.changefeeds, "a changefeed that is created"))
]
"""A changefeed that the scenario has or creates."""

NewChangefeed: TypeAlias = Annotated[str, ReadBy(lambda value, names: new_name(value))]
"""A name that no other changefeed has, nor had."""

SinkKind: TypeAlias = Annotated[
    Literal["kafka", "mysql"], ReadBy(lambda value, names: value.choice(("kafka", "mysql"), "a kind of downstream"))
]

MessageKind: TypeAlias = Annotated[
    str, ReadBy(lambda value, names: value.choice(names.messages, "a message of this variant"))
]
"""The name of a message of the variant."""

Versions: TypeAlias = Annotated[
    tuple[tuple[str, str], ...], ReadBy(lambda value, names: tuple((k.text(), v.text()) for k, v in value.entries()))
]
"""A version by the name of what has it."""

Disk: TypeAlias = Annotated[
    str, ReadBy(lambda value, names: value.choice(kernel.DISKS, "what a store finds of its disk"))
]
"""Of :data:`ticdc_lab.simulate.faults.DISKS`."""

Duration: TypeAlias = int
"""µs."""

Lasting: TypeAlias = Annotated[int, ReadBy(lambda value, names: value.duration_us())]
"""µs for which what happens lasts: its end is the event's end."""

SignedDuration: TypeAlias = Annotated[int, ReadBy(lambda value, names: value.duration_us(negative=True))]
"""µs; may be negative."""

Share: TypeAlias = Annotated[Fraction, ReadBy(lambda value, names: value.probability())]
"""A probability."""

Transport: TypeAlias = Annotated[
    Literal["resend", "datagram"], ReadBy(lambda value, names: value.choice(("resend", "datagram"), "a transport"))
]
Distribution: TypeAlias = Literal["fixed", "uniform", "exponential"]


def one_or_more(value: Value) -> list[Value]:
    """Give the values of a list; a single one needs none."""
    return [value] if value.is_text else value.items()


@dataclass(frozen=True, slots=True)
class Delay:
    """How long a message is under way, µs.

    ``fixed``: always ``low_us``; ``uniform``: from ``low_us`` to ``high_us``; ``exponential``: ``low_us`` and, on
    average, ``high_us`` more.
    """

    kind: Distribution = "uniform"
    low_us: int = 500
    high_us: int = 2_000

    @classmethod
    def read_from(cls, value: Value, names: Names) -> Delay:
        """Read ``2ms``, ``[1ms, 5ms]`` or ``{mean: 3ms, least: 1ms}``."""
        if value.is_text:
            fixed = value.duration_us()
            return cls("fixed", fixed, fixed)
        if value.is_list:
            ends = value.items()
            if len(ends) != 2 or ends[0].duration_us() > ends[1].duration_us():
                raise value.wrong("a delay [from, to] of two rising durations")
            return cls("uniform", ends[0].duration_us(), ends[1].duration_us())
        given = value.fields({"mean", "least"}, required=["mean"])
        least = given["least"].duration_us() if "least" in given else 0
        if given["mean"].duration_us() < least:
            raise given["mean"].wrong("a mean of at least `least`")
        return cls("exponential", least, given["mean"].duration_us() - least)


# The network


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """The way from one node to another, where it is not as the rest; None where it is."""

    from_: Node
    to: Node
    delay: Delay | None = None
    loss: Share | None = None
    duplicate: Share | None = None
    reorder: Share | None = None


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """How messages travel: ``{delay: [1ms, 5ms], loss: 1%, transport: datagram}``.

    ``resend``: as TiCDC's peer-to-peer messages, a lost one is sent again and order is kept; ``datagram``: neither.
    Probabilities are exact.
    """

    delay: Delay = field(default_factory=Delay)
    loss: Share = Fraction(0)
    duplicate: Share = Fraction(0)
    reorder: Share = Fraction(0)
    transport: Transport = "resend"
    links: tuple[LinkSettings, ...] = ()

    def link(self, one: LinkSettings | None = None) -> net.Link:
        """Give how messages travel, or how they do over one link."""
        whole = _changed(net.GOOD, self)
        return whole if one is None else _changed(whole, one)

    def network(self) -> net.Network:
        """Give the kernel's."""
        links = tuple(((one.from_, one.to), self.link(one)) for one in self.links)
        return net.Network(self.link(), links, self.transport)


def _changed(link: net.Link, one: NetworkSettings | LinkSettings) -> net.Link:
    if one.delay and one.delay.kind == "exponential":
        link = link._replace(delay_us=(one.delay.low_us, one.delay.low_us), tail_us=one.delay.high_us)
    elif one.delay:
        link = link._replace(delay_us=(one.delay.low_us, one.delay.high_us), tail_us=0)
    return link._replace(
        loss=link.loss if one.loss is None else float(one.loss),
        duplicate=link.duplicate if one.duplicate is None else float(one.duplicate),
        reorder=link.reorder if one.reorder is None else float(one.reorder),
    )


# What every model lets happen


class EventKind(NamedTuple):
    """A row of a table of events: everything about one."""

    says: str  # what happens, for people: the reference page has it
    # By name its type, or type and default. The first is the value beside the event's name, ``crash: capture-1``, the
    # others are beside it, ``for: 2s``. The type defines how it is read.
    fields: Mapping[str, Any]
    # What it is to the kernel, of the event's values, the event and the scenario; nothing where it is of the load.
    does: Callable[[Any, Planned, Any], Iterable[Any]] = lambda what, event, scenario: ()
    # Which other models take the row: ``all`` that build on this one; the pipeline, not changefeeds, as it asks the
    # owner, the processors or the downstream of ``one`` changefeed; or none, as it is the model's ``own``.
    reach: Literal["all", "one", "own"] = "all"


def table(rows: Mapping[str, EventKind]) -> dict[str, type]:
    """Give the classes of events' values by the events' names; :meth:`apply` gives what one is to the kernel."""
    return {name: _class_of(name, row) for name, row in rows.items()}


def _class_of(name: str, row: EventKind) -> type:
    own = [
        (field_name, hint[0], field(default=hint[1])) if isinstance(hint, tuple) else (field_name, hint)
        for field_name, hint in row.fields.items()
    ]
    does = {"apply": lambda what, event, scenario: row.does(what, event, scenario)}
    said = {"__doc__": row.says, "reach": row.reach}
    return make_dataclass(name, own, frozen=True, slots=True, namespace=does | said)


def _until_resumed(what: Any, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
    resumed = [
        e.at_us for e in scenario.events
        if e.kind == "resume" and e.what.node == what.node and e.at_us > event.at_us
    ]  # fmt: skip
    until_us = min([*resumed, scenario.until_us + 1 if what.for_us is None else event.at_us + what.for_us])
    yield kernel.Pause(event.at_us, what.node, until_us - event.at_us)


def _pairs(what: Any, scenario: Scenario) -> list[tuple[str, str]]:
    """Give the nodes of both sides of a partition; the other side is every other node where it is silent."""
    return list(product(what.nodes, what.from_ or tuple(n for n in scenario.everyone if n not in what.nodes)))


def _healed(what: Any, event: Planned, scenario: Scenario) -> Iterator[kernel.Fault]:
    cuts = [e.what for e in scenario.events if e.kind == "partition" and e.at_us <= event.at_us]
    for a, b in dict.fromkeys(pair for cut in cuts for pair in _pairs(cut, scenario)):
        if not what.nodes or {a, b} & set(what.nodes):
            yield kernel.Heal(event.at_us, a, b)


FAULTS: dict[str, type] = table(
    {
        "crash": EventKind(
            "A node stops at once and loses what it had in memory, unless it comes back with its state.",
            {"node": Node},
            lambda w, e, s: [kernel.Crash(e.at_us, w.node)],
        ),
        "restart": EventKind(
            "A crashed node comes back, as a new one unless it keeps its state.",
            {"node": Node, "keep_state": (bool, False)},
            lambda w, e, s: [kernel.Restart(e.at_us, w.node, w.keep_state)],
        ),
        "pause": EventKind(
            "A node does nothing for a while and loses nothing (a long garbage collection, a frozen machine).",
            {"node": Node, "for_us": (Lasting | None, None)},
            _until_resumed,
        ),
        "resume": EventKind("A paused node resumes.", {"node": Node}),
        "partition": EventKind(
            "Messages from and to some nodes no longer arrive at the others, one way: only those from them. `from` "
            "names the other side: every other node by default.",
            {"nodes": Nodes, "from_": (Nodes, ()), "one_way": (bool, False), "for_us": (Lasting | None, None)},
            lambda w, e, s: [kernel.Part(e.at_us, a, b, w.one_way, w.for_us) for a, b in _pairs(w, s)],
        ),
        "heal": EventKind("Partitions end: all, or those that some nodes are in.", {"nodes": (Nodes, ())}, _healed),
        "lose": EventKind(
            "The next messages of a kind do not arrive, of those that are sent within a while or ever.",
            {
                "message": MessageKind, "from_": (Node | None, None), "to": (Node | None, None), "count": (int, 1),
                "for_us": (Lasting | None, None),
            },
            lambda w, e, s: [
                kernel.Lose(e.at_us, w.message, w.from_, w.to, w.count, None if w.for_us is None else e.ends_us)
            ],
        ),
        "refuse": EventKind(
            'The transport of a node takes no message to another one for a while: it says "try again".',
            {"from_": Node, "to": Node, "for_us": Lasting},
            lambda w, e, s: [kernel.Refuse(e.at_us, w.from_, w.to, w.for_us)],
        ),
        "link": EventKind(
            "The way from a node to another one is another one from now on; what is silent is as in the whole network.",
            {n: hint if n in ("from_", "to") else (hint, None) for n, hint in field_types(LinkSettings).items()}
            | {"for_us": (Lasting | None, None)},
            lambda w, e, s: [kernel.Relink(e.at_us, w.from_, w.to, s.network.link(w), w.for_us)],
        ),
        "clock": EventKind(
            "The clock of a node is ahead by an offset, or runs faster by a share of its time.",
            {"node": Node, "offset_us": (SignedDuration, 0), "drift": (Fraction, Fraction(0))},
            lambda w, e, s: [kernel.Skew(e.at_us, w.node, w.offset_us, int(w.drift * 1_000_000))],
        ),
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Planned:
    """Something that happens at a moment."""

    at_us: int
    name: str  # how assertions speak of it: ``crash capture-1``, or the ``name`` it is given
    kind: str  # its name in the model's table
    what: Any  # its values; their ``apply`` gives what it is to the kernel; PD's are the change itself
    line: int  # its line in the file

    @property
    def ends_us(self) -> int:
        """When it is over; what happens for good is over at once."""
        return self.at_us + max((us or 0 for _, us in named([self], (Lasting,))), default=0)


@dataclass(frozen=True, slots=True)
class RandomFaults:
    """Faults at random moments, on average one in ``every_us``; all are over at ``until_us``."""

    faults: tuple[str, ...]
    every_us: int
    until_us: int
    from_us: int = 0
    line: int = 0

    def chaos(self, kinds: tuple[str, ...], drawn: Callable[[kernel.Chaos], list[kernel.Fault]]) -> list[kernel.Fault]:
        """Give faults of some kinds in the time for which they were asked."""
        chaos = kernel.Chaos(self.until_us - self.from_us, self.every_us, kinds)
        return [fault._replace(at_us=fault.at_us + self.from_us) for fault in drawn(chaos)]


_SEEDS_APART = 1_000_003


def faults_of(
    scenario: Scenario, seed: int, drawn: Callable[[RandomFaults, int], Iterable[kernel.Fault]]
) -> list[kernel.Fault]:
    """Give what happens in a run: as planned, and as the seed draws it, by what the model draws for random faults."""
    found = [fault for event in scenario.events for fault in event.what.apply(event, scenario)]
    for i, some in enumerate(scenario.random):
        found += drawn(some, seed + i * _SEEDS_APART)
    return sorted(found, key=lambda fault: fault.at_us)


# Reading them


def added(events: Iterable[Value], kinds: Mapping[str, type]) -> Names:
    """Give the nodes, tables and changefeeds that events bring, so that other events may speak of them."""
    found: dict[str, set[Any]] = {"nodes": set(), "tables": set(), "changefeeds": set()}
    of = {"nodes": NewNode, "tables": NewTableId, "changefeeds": NewChangefeed}
    for event in events:
        for key, one in event.entries():
            main = next(iter(field_types(kinds[key.text()]).values()), None) if key.text() in kinds else None
            for name, kind in of.items():
                if main is not None and is_kind(main, (kind,)):
                    found[name].add(Reader().field("", kind, one))
    nodes, tables, changefeeds = (frozenset(found[name]) for name in of)
    return Names(nodes, tables, changefeeds=changefeeds)


def planned(value: Value, kinds: Mapping[str, type], names: Names, until_us: int) -> Planned:
    """Read one event: ``{at: 3s, crash: capture-1}``."""
    beside = {yaml_name(name) for kind in kinds.values() for name in field_types(kind)}
    given = value.fields({"at", "name", *kinds, *beside}, required=["at"])
    kind, what = _what(value, given, kinds, names)
    at_us = given["at"].duration_us()
    if at_us > until_us:
        raise given["at"].wrong("a moment within the run", hint="The run ends earlier: see `until`.")
    name = given["name"].text() if "name" in given else " ".join([kind, *_first(what, given[kind])])
    return Planned(at_us, name, kind, what, value.line)


def spelled(kinds: Mapping[str, type], at_us: int, kind: str, values: Mapping[str, Any]) -> str:
    """Give an event as a file has it, ``{at: 3s, crash: capture-1}``, from the values of some of its row's fields."""
    main = next(iter(field_types(kinds[kind])), "")
    told = {kind: _spelled(main, values.get(main))}
    told |= {yaml_name(name): _spelled(name, values[name]) for name in field_types(kinds[kind]) if name in values}
    told.pop(yaml_name(main), None)
    return f"{{at: {shown(at_us)}, {', '.join(f'{name}: {value}' for name, value in told.items())}}}"


def _spelled(name: str, value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(str, value))}]"
    return shown(value) if name.endswith("_us") else str(value)


def require_there(events: Iterable[Planned], there: Collection[Any], file: str) -> None:
    """Refuse an event of a node or table that comes later than it, and a second node of one name."""
    born: dict[Any, int] = {}
    for event, name in named(events, (NewNode, NewTableId, NewChangefeed)):
        if isinstance(name, str) and (name in there or name in born):
            wrong = f"{file}:{event.line}: expected a name that no other node has; found {name} again."
            raise ScenarioError(wrong, hint=f"Give it a name of its own in {file}.")
        if name not in there:
            born[name] = min(event.at_us, born.get(name, event.at_us))
    for event, name in named(events, (Node, Nodes, TableId, TableIds, ChangefeedName)):
        if born.get(name, 0) > event.at_us:
            expected = f"expected something that is there at {shown(event.at_us)}"
            wrong = f"{file}:{event.line}: {expected}; found {name}, which comes at {shown(born[name])}."
            raise ScenarioError(wrong, hint=f"Let the event happen at {shown(born[name])} or later.")


def named(events: Iterable[Planned], kinds: Collection[Any]) -> Iterator[tuple[Planned, Any]]:
    """Give what events name, by the kind of their fields."""
    for event in events:
        for name, hint in field_types(type(event.what)).items():
            if is_kind(hint, kinds):
                value = getattr(event.what, name)
                for one in value if isinstance(value, tuple) else (value,):
                    yield event, one


def _what(value: Value, given: Mapping[str, Value], kinds: Mapping[str, type], names: Names) -> tuple[str, Any]:
    named = [k for k in given if k in kinds]
    if len(named) != 1:
        raise value.wrong("one event", found=", ".join(named) or "none", hint=f"One of: {', '.join(sorted(kinds))}.")
    kind = named[0]
    hints, reader = field_types(kinds[kind]), Reader(names, least=1, takes_none=False)
    main, *others = fields(kinds[kind]) or [None]
    beside = {yaml_name(f.name): f.name for f in others if f}
    found = {}
    for key, one in given.items():
        if key == kind and main and not (one.is_empty and main.default is not MISSING):
            found[main.name] = reader.field(main.name, hints[main.name], one)
        elif key == kind and not main and not one.is_empty:
            raise one.wrong(f"nothing beside {kind}")
        elif key in beside:
            found[beside[key]] = reader.field(beside[key], hints[beside[key]], one)
        elif key not in ("at", "name", kind):
            known = ", ".join(sorted(beside)) or "none"
            raise one.wrong(f"a field of {kind}", found=key, hint=f"Fields of {kind} beside `at` and `name`: {known}.")
    for missing in (f for f in others if f and f.name not in found and f.default is MISSING):
        raise value.wrong(f"a field {yaml_name(missing.name)} of {kind}", found="none")
    return kind, kinds[kind](**found)


def _first(what: Any, value: Value) -> list[str]:
    """The value beside an event's name, as assertions repeat it."""
    main = next(iter(fields(what)), None)
    first: Any = getattr(what, main.name) if main else None
    if main is None or first == main.default:
        return []
    if main.name.endswith("_us"):
        return [shown(first)]
    return [" ".join(one.text() for one in one_or_more(value))]
