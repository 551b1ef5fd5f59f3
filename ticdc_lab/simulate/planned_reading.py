"""The events of a scenario file, read by the types of their fields."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from typing import Any, get_args

from ticdc_lab.errors import ScenarioError
from ticdc_lab.simulate.faults import DISKS
from ticdc_lab.simulate.planned import Delay, Planned, SinkKind
from ticdc_lab.simulate.scenario_yaml import Value, shown


@dataclass(frozen=True, slots=True)
class Names:
    """What a file may speak of.

    Attributes
    ----------
    nodes
        Of the cluster, and those that join later.
    tables
        Of the cluster, and those that are added later.
    messages
        Kinds of the variant.
    changefeeds
        Those that are created.
    """

    nodes: frozenset[str]
    tables: frozenset[int]
    messages: frozenset[str]
    changefeeds: frozenset[str] = frozenset()

    def node(self, value: Value) -> str:
        """Read the name of a node that is there."""
        return value.choice(self.nodes, "a node of the cluster")

    def table(self, value: Value) -> int:
        """Read the id of a table that is there."""
        table = value.integer()
        if table not in self.tables:
            raise value.wrong("a table of the cluster", hint="Give it to `cluster.tables`, or add it with add_table.")
        return table

    def message(self, value: Value) -> str:
        """Read the name of a message of the variant."""
        return value.choice(self.messages, "a message of this variant")


def delay(value: Value) -> Delay:
    """Read ``2ms``, ``[1ms, 5ms]`` or ``{mean: 3ms, least: 1ms}``."""
    if value.is_text:
        fixed = value.duration_us()
        return Delay("fixed", fixed, fixed)
    if value.is_list:
        ends = value.items()
        if len(ends) != 2 or ends[0].duration_us() > ends[1].duration_us():
            raise value.wrong("a delay [from, to] of two rising durations")
        return Delay("uniform", ends[0].duration_us(), ends[1].duration_us())
    given = value.fields({"mean", "least"}, required=["mean"])
    least = given["least"].duration_us() if "least" in given else 0
    if given["mean"].duration_us() < least:
        raise given["mean"].wrong("a mean of at least `least`")
    return Delay("exponential", least, given["mean"].duration_us() - least)


_NAME = re.compile(r"[A-Za-z][\w-]*")

READERS: dict[str, Callable[[Value, Names], Any]] = {
    "Node": lambda v, names: names.node(v),
    "Nodes": lambda v, names: _nodes(v, names),
    "NewNode": lambda v, names: new_node(v),
    "Text": lambda v, names: v.text(),
    "TableId": lambda v, names: names.table(v),
    "NewTableId": lambda v, names: v.integer(),
    "TableIds": lambda v, names: tuple(names.table(one) for one in ([v] if v.is_text else v.items())),
    "NewChangefeed": lambda v, names: new_node(v),
    "ChangefeedName": lambda v, names: v.choice(names.changefeeds, "a changefeed that is created"),
    "SinkKind": lambda v, names: v.choice(get_args(SinkKind), "a kind of downstream"),
    "MessageKind": lambda v, names: names.message(v),
    "Disk": lambda v, names: v.choice(DISKS, "what a store finds of its disk"),
    "Duration": lambda v, names: v.duration_us(),
    "SignedDuration": lambda v, names: v.duration_us(negative=True),
    "Share": lambda v, names: v.probability(),
    "Fraction": lambda v, names: v.number(),
    "Delay": lambda v, names: delay(v),
    "bool": lambda v, names: v.flag(),
    "int": lambda v, names: v.integer(least=1),
}
"""How a value is read, by the name of its field's type."""


def new_node(value: Value) -> str:
    """Read a name that a node may have."""
    if not _NAME.fullmatch(value.text()):
        raise value.wrong("a name", hint="A letter, then letters, digits, _ and -.")
    return value.text()


def added(events: Iterable[Value], kinds: Mapping[str, type]) -> Names:
    """Give the nodes, tables and changefeeds that events bring, so that other events may speak of them."""
    found: dict[str, set[Any]] = {"NewNode": set(), "NewTableId": set(), "NewChangefeed": set()}
    for event in events:
        for key, one in event.entries():
            main = next(iter(fields(kinds[key.text()])), None) if key.text() in kinds else None
            if main and main.type in found:
                found[str(main.type)].add(one.integer() if main.type == "NewTableId" else new_node(one))
    nodes, tables, changefeeds = (frozenset(names) for names in found.values())
    return Names(nodes, tables, frozenset(), changefeeds)


def planned(value: Value, kinds: Mapping[str, type], names: Names, until_us: int) -> Planned:
    """Read one event: ``{at: 3s, crash: capture-1}``."""
    beside = {yaml_name(f) for kind in kinds.values() for f in fields(kind)}
    given = value.fields({"at", "name", *kinds, *beside}, required=["at"])
    kind, what = _what(value, given, kinds, names)
    at_us = given["at"].duration_us()
    if at_us > until_us:
        raise given["at"].wrong("a moment within the run", hint="The run ends earlier: see `until`.")
    name = given["name"].text() if "name" in given else " ".join([kind, *_first(what)])
    return Planned(at_us, name, what, value.line)


def require_there(events: Iterable[Planned], there: Collection[Any], file: str) -> None:
    """Refuse an event of a node or table that comes later than it, and a second node of one name."""
    born: dict[Any, int] = {}
    for event, name in named(events, ("NewNode", "NewTableId", "NewChangefeed")):
        if isinstance(name, str) and (name in there or name in born):
            raise _not_there(
                file, event, "a name that no other node has", f"{name} again", "Give it a name of its own."
            )
        if name not in there:
            born[name] = min(event.at_us, born.get(name, event.at_us))
    for event, name in named(events, ("Node", "Nodes", "TableId", "TableIds", "ChangefeedName")):
        if born.get(name, 0) > event.at_us:
            later = f"{name}, which comes at {shown(born[name])}"
            raise _not_there(
                file, event, f"something that is there at {shown(event.at_us)}", later, "Let the event happen later."
            )


def named(events: Iterable[Planned], kinds: Collection[str]) -> Iterator[tuple[Planned, Any]]:
    """Give what events name, by the kind of their fields."""
    for event in events:
        for field in fields(event.what):
            if str(field.type).removesuffix(" | None") in kinds:
                value = getattr(event.what, field.name)
                for name in value if isinstance(value, tuple) else (value,):
                    yield event, name


def _not_there(file: str, event: Planned, expected: str, found: str, hint: str) -> ScenarioError:
    return ScenarioError(f"{file}:{event.line}: expected {expected}; found {found}.", hint=hint)


def _what(value: Value, given: Mapping[str, Value], kinds: Mapping[str, type], names: Names) -> tuple[str, Any]:
    kind = _kind(value, given, kinds)
    main, *others = fields(kinds[kind]) or [None]
    beside = {yaml_name(f): f for f in others if f}
    found = {}
    for key, one in given.items():
        if key == kind and main and not (one.is_empty and main.default is not MISSING):
            found[main.name] = read_field(main, one, names)
        elif key == kind and not main and not one.is_empty:
            raise one.wrong(f"nothing beside {kind}")
        elif key in beside:
            found[beside[key].name] = read_field(beside[key], one, names)
        elif key not in ("at", "name", kind):
            known = ", ".join(sorted(beside)) or "none"
            raise one.wrong(f"a field of {kind}", found=key, hint=f"Fields of {kind} beside `at` and `name`: {known}.")
    for field in (f for f in others if f and f.name not in found and f.default is MISSING):
        raise value.wrong(f"a field {yaml_name(field)} of {kind}", found="none")
    return kind, kinds[kind](**found)


def _kind(value: Value, given: Mapping[str, Value], kinds: Mapping[str, type]) -> str:
    """The one name of an event; ``link`` has none beside it but from and to."""
    found = [k for k in given if k in kinds]
    if len(found) != 1:
        raise value.wrong("one event", found=", ".join(found) or "none", hint=f"One of: {', '.join(sorted(kinds))}.")
    return found[0]


def read_field(field: Field[Any], value: Value, names: Names) -> Any:
    """Read a value by the type of the field that it is for."""
    return READERS[str(field.type).removesuffix(" | None")](value, names)


def yaml_name(field: Field[Any]) -> str:
    """Give the name of a field in a file."""
    return field.name.removesuffix("_us").removesuffix("_")


def _nodes(value: Value, names: Names) -> tuple[str, ...]:
    return (names.node(value),) if value.is_text else tuple(names.node(v) for v in value.items())


def _first(what: Any) -> list[str]:
    """The value beside an event's name, as assertions repeat it."""
    main = next(iter(fields(what)), None)
    first: Any = getattr(what, main.name) if main else None
    if main is None or first == main.default:
        return []
    if main.type == "Duration":
        return [shown(first)]
    return [" ".join(first) if isinstance(first, tuple) else str(first)]
