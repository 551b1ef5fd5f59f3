"""The one reader of scenario files: a section is read by the types of the class that it becomes.

A field is in the file under its name, without an ending ``_us`` (it is a duration then) and without ``_``. A number
that is bounded declares it (``Annotated[int, Meta(ge=1, le=100)]``, msgspec's), a value of another form how it is read
(``Annotated[str, Read(..)]``); a class may read itself (``read_from``), and look at what it was made of (``refuse``).
Every mistake is reported with line, place, what was expected, found and what to do, as msgspec's and pydantic's
own readers cannot: they know neither lines, nor the names that the rest of the file has.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from fractions import Fraction
from types import MappingProxyType, NoneType, SimpleNamespace, UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from msgspec import Meta

from ticdc_lab.errors import ScenarioError, TiCDCLabError
from ticdc_lab.simulate.scenario_yaml import Value

T = TypeVar("T")
Choices = Mapping[str, tuple[str, ...]]
_NAME = re.compile(r"[A-Za-z][\w-]*")
_SETTING = "a known value"


@dataclass(frozen=True, slots=True)
class Names:
    """What a file may speak of."""

    nodes: frozenset[str] = frozenset()  # of the cluster, and those that join later
    tables: frozenset[int] = frozenset()  # of the cluster, and those that are added later
    messages: frozenset[str] = frozenset()  # kinds of the variant
    changefeeds: frozenset[str] = frozenset()  # those that are created
    may_add_tables: bool = False  # whether an event adds one

    def node(self, value: Value) -> str:
        """Read the name of a node that is there."""
        return value.choice(self.nodes, "a node of the cluster")

    def table(self, value: Value) -> int:
        """Read the id of a table that is there."""
        table = value.integer()
        if table not in self.tables:
            added = ", or add it with add_table" if self.may_add_tables else ""
            raise value.wrong("a table of the cluster", hint=f"Give it to `cluster.tables`{added}.")
        return table


class ReadBy(NamedTuple):
    """Beside a type: how a value of it is read, and the type that it has in the file, where that is another."""

    by: Callable[[Value, Names], Any]
    spelt: type | None = None


def new_name(value: Value) -> str:
    """Read a name that a node may have."""
    if not _NAME.fullmatch(value.text()):
        raise value.wrong("a name", hint="Write a letter, then letters, digits, `_` and `-`.")
    return value.text()


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads sections."""

    names: Names = Names()  # what they may speak of
    least: int = 0  # of whole numbers that are not bounded
    without: Collection[str] = ()  # fields that are not in the file
    choices: Choices = field(default_factory=dict)  # fields that are one of some texts
    takes_none: bool = True  # whether ``none``, or an empty place, means nothing where there may be nothing

    def record(self, value: Value, kind: type[T], base: T | None = None) -> T:
        """Give a section's content; what it does not name is as in ``base``, or has its default."""
        hints = field_types(kind, frozenset(self.without))
        known = {yaml_name(name): name for name in hints}
        defaults = _defaults(kind)
        needed = [] if base is not None else [yaml_name(name) for name in hints if not defaults[name]]
        given = value.fields(known, required=needed)
        found = {known[key]: self.field(known[key], hints[known[key]], one) for key, one in given.items()}
        try:
            made: Any = kind(**found) if base is None else replace(base, **found)  # type: ignore[type-var]
        except ScenarioError:
            raise
        except (ValueError, TiCDCLabError) as error:
            raise value.wrong(f"settings that go together ({error})") from error
        if hasattr(made, "refuse"):
            made.refuse(value, given)
        found_record: T = made
        return found_record

    def field(self, name: str, hint: Any, value: Value) -> Any:
        """Give the value of a field, by its type."""
        hint, is_optional = _without_none(hint)
        if is_optional and self.takes_none and (value.is_empty or (value.is_text and value.text() == "none")):
            return None
        notes = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
        for note in notes:
            if isinstance(note, ReadBy):
                return note.by(value, self.names)
        kind = get_args(hint)[0] if notes else hint
        if hasattr(kind, "read_from"):
            return kind.read_from(value, self.names)
        if isinstance(kind, type) and (is_dataclass(kind) or hasattr(kind, "_fields")):
            return self.record(value, kind) if not value.is_empty else kind()
        if name.endswith("_us"):
            return value.duration_us()
        if kind is int:
            return value.integer(**_bounds(notes, self.least))
        return self._among(name, kind, value) if get_origin(kind) or name in self.choices else _PLAIN[kind](value)

    def _among(self, name: str, kind: Any, value: Value) -> Any:
        """Read one of some texts, some of them, or a list of other values."""
        if get_origin(kind) is frozenset:
            return frozenset(one.choice(self.choices.get(name, ()), _SETTING) for one in value.items())
        if get_origin(kind) is tuple:
            return tuple(self.field("", get_args(kind)[0], one) for one in value.items())
        return value.choice(get_args(kind) if get_origin(kind) is Literal else self.choices[name], _SETTING)


def read_record(value: Value | None, kind: type[T], reader: Reader | None = None) -> T:
    """Give a section's content; an absent or empty one has its defaults."""
    return kind() if value is None or value.is_empty else (reader or Reader()).record(value, kind)


DURATION = {"type": ["string", "integer"], "pattern": r"^-?(0|(\d+(\.\d+)?(us|µs|ms|s|m|h))+|none)$"}
_SCALAR = {"type": ["string", "number", "boolean"]}
_JSON: Mapping[Any, dict[str, Any]] = MappingProxyType(
    {bool: {"type": "boolean"}, int: {"type": "integer"}, float: _SCALAR, Fraction: _SCALAR, str: _SCALAR}
)


def json_type(name: str, hint: Any, reader: Reader) -> dict[str, Any]:
    """Give the JSON schema of a field's value: its form, not which names the rest of the file has."""
    hint, is_optional = _without_none(hint)
    notes = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    spelt = next((note.spelt for note in notes if isinstance(note, ReadBy)), None)
    kind = spelt or (get_args(hint)[0] if notes else hint)
    found: dict[str, Any] = {}  # a class or a function that reads a form of its own: any value
    if name.endswith("_us"):
        found = DURATION
    elif get_origin(kind) is Literal or name in reader.choices:
        found = {"enum": [*(get_args(kind) if get_origin(kind) is Literal else reader.choices[name])]}
        found = {"type": "array", "items": found} if get_origin(kind) is frozenset else found
    elif kind in _JSON:
        meta = next((note for note in notes if isinstance(note, Meta)), Meta())
        found = _JSON[kind] | {k: v for k, v in {"minimum": meta.ge, "maximum": meta.le}.items() if v is not None}
    elif any(isinstance(note, ReadBy) for note in notes) or hasattr(kind, "read_from"):
        return found
    elif get_origin(kind) is tuple:
        found = {"type": "array", "items": json_type("", get_args(kind)[0], reader)}
    elif isinstance(kind, type) and (is_dataclass(kind) or hasattr(kind, "_fields")):
        found = json_record(kind, reader)
    return {"anyOf": [found, {"enum": ["none", None]}]} if is_optional else found


def json_record(kind: Any, reader: Reader) -> dict[str, Any]:
    """Give the JSON schema of a section that becomes a class, as a reader reads it."""
    hints, defaults = field_types(kind, frozenset(reader.without)), _defaults(kind)
    return {
        "type": ["object", "null"], "additionalProperties": False,
        "properties": {yaml_name(name): json_type(name, hint, reader) for name, hint in hints.items()},
        "required": [yaml_name(name) for name in hints if not defaults[name]],
    }  # fmt: skip


def yaml_name(name: str) -> str:
    """Give the name of a field in a file."""
    return name.removesuffix("_us").removesuffix("_")


def field_types(kind: Any, without: frozenset[str] = frozenset()) -> Mapping[str, Any]:
    """Give the types of a class's fields that are in a file; the others may use unknown names."""
    if (kind, without) not in _FIELD_TYPES:
        there = [name for name in _defaults(kind) if name not in without]
        hints: dict[str, Any] = {}
        for base in reversed(kind.__mro__):
            own = {name: hint for name, hint in vars(base).get("__annotations__", {}).items() if name in there}
            known = vars(sys.modules[base.__module__])
            hints |= get_type_hints(SimpleNamespace(__annotations__=own), known, include_extras=True)
        _FIELD_TYPES[kind, without] = MappingProxyType({name: hints[name] for name in there})
    return _FIELD_TYPES[kind, without]


_FIELD_TYPES: dict[tuple[Any, frozenset[str]], Mapping[str, Any]] = {}


def is_kind(hint: Any, kinds: Collection[Any]) -> bool:
    """Whether a field is of one of some types, or may be."""
    return any(_without_none(hint)[0] == kind for kind in kinds)


def _defaults(kind: Any) -> dict[str, bool]:
    """Give the fields of a dataclass or a NamedTuple, and whether each has a default."""
    if not is_dataclass(kind):
        return {name: name in kind._field_defaults for name in kind._fields}
    own = [f for f in fields(kind) if f.init]
    return {f.name: f.default is not MISSING or f.default_factory is not MISSING for f in own}


def _without_none(hint: Any) -> tuple[Any, bool]:
    if get_origin(hint) not in (Union, UnionType):
        return hint, False
    return next(k for k in get_args(hint) if k is not NoneType), True


def _bounds(notes: tuple[Any, ...], least: int) -> dict[str, int]:
    meta = next((note for note in notes if isinstance(note, Meta)), None)
    if meta is None:
        return {"least": least}
    bounds = {"least": meta.ge, "most": meta.le}
    return {name: int(bound) for name, bound in bounds.items() if bound is not None}


_PLAIN: Mapping[Any, Callable[[Value], Any]] = MappingProxyType(
    {bool: Value.flag, str: Value.text, float: lambda value: float(value.number()), Fraction: Value.number}
)
