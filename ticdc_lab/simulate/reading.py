"""The one reader of scenario files: YAML values with their lines, and sections read by the types that they become.

Nothing is constructed from the file but texts, integers and what is read from them, durations among it: tags have no
effect. :func:`replace_value` puts other values in, for comparisons and sweeps.

A section is read by the types of the class that it becomes. A field is in the file under its name, without an ending
``_us`` (it is a duration then) and without ``_``. A number that is bounded declares it (``Annotated[int, Meta(ge=1,
le=100)]``, msgspec's), a value of another form how it is read (``Annotated[str, Read(..)]``); a class may read itself
(``read_from``), and look at what it was made of (``refuse``). Every mistake is reported with line, place, what was
expected, found and what to do, as msgspec's and pydantic's own readers cannot: they know neither lines, nor the names
that the rest of the file has.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from difflib import get_close_matches
from fractions import Fraction
from types import MappingProxyType, NoneType, SimpleNamespace, UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import yaml
from msgspec import Meta

from ticdc_lab.errors import ScenarioError, TiCDCLabError
from ticdc_lab.errors.bounded import BoundedLoader, TooMuch

UNITS_US = {"us": 1, "µs": 1, "ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000}
_PART = r"(\d{1,100}(?:\.\d{1,100})?)(us|µs|ms|s|m|h)"
_WHOLE = re.compile(f"(?:{_PART})+")
_NEAR = 0.75
"""How alike a name is that is meant: `drop_table` is not what `add_table` wanted."""


def duration_us(text: str) -> int | None:
    """Give the microseconds of a duration; None where the text is none, or finer than a microsecond.

    Examples
    --------
    >>> duration_us("1.5s"), duration_us("1m30s"), duration_us("0"), duration_us("5")
    (1500000, 90000000, 0, None)
    """
    if text == "0":
        return 0
    if not _WHOLE.fullmatch(text):
        return None
    total = sum((Fraction(n) * UNITS_US[unit] for n, unit in re.findall(_PART, text)), Fraction())
    return int(total) if total.denominator == 1 else None


def shown(us: int) -> str:
    """Give a moment or a duration as people read it, exact.

    Examples
    --------
    >>> shown(1_500_000), shown(200_000), shown(0)
    ('1.5s', '200ms', '0s')
    """
    if us == 0:
        return "0s"
    sign, size = ("-" if us < 0 else ""), abs(us)
    unit = "s" if size >= 1_000_000 else "ms" if size >= 1_000 else "us"
    whole, part = divmod(size, UNITS_US[unit])
    digits = str(part).rjust(len(str(UNITS_US[unit])) - 1, "0").rstrip("0") if part else ""
    return f"{sign}{whole}{'.' + digits if digits else ''}{unit}"


# longer ones, and powers of four digits, only cost time
_INTEGER = re.compile(r"[-+]?\d[\d_]{0,99}")
_NUMBER = re.compile(r"[-+]?\d{1,100}(?:\.\d{1,100})?(?:e-?\d{1,3})?%?")
_FLAGS = {"true": True, "false": False, "yes": True, "no": False}
PLAIN = "tag:yaml.org,2002:"
_TAGS = {PLAIN + kind for kind in ("str", "int", "float", "bool", "timestamp", "merge", "value")}


@dataclass(frozen=True, slots=True)
class Value:
    """One value of a file: ``path``: which, as in ``events[2].at``."""

    file: str
    node: yaml.Node
    path: str = ""

    @property
    def line(self) -> int:
        """Where it stands, from 1."""
        return int(self.node.start_mark.line) + 1

    @property
    def is_text(self) -> bool:
        return isinstance(self.node, yaml.ScalarNode) and not self.is_empty

    @property
    def is_list(self) -> bool:
        return isinstance(self.node, yaml.SequenceNode)

    @property
    def is_empty(self) -> bool:
        return isinstance(self.node, yaml.ScalarNode) and self.node.tag == f"{PLAIN}null"

    def wrong(self, expected: str, *, hint: str = "", found: str | None = None) -> ScenarioError:
        """Give the error with place, what was expected, what was found and what to do."""
        where = f" at {self.path}" if self.path else ""
        told = self._told() if found is None else found
        return ScenarioError(f"{self.file}:{self.line}: expected {expected}{where}; found {told}.", hint=hint)

    def fields(self, known: Collection[str], *, required: Collection[str] = ()) -> dict[str, Value]:
        """Give the entries of a mapping; a name that is not ``known``, or is repeated, is refused."""
        found: dict[str, Value] = {}
        for key, value in self.entries():
            if key.text() not in known:
                near = get_close_matches(key.text(), known, n=1, cutoff=_NEAR)
                hint = f"Did you mean {near[0]}?" if near else f"Known here: {', '.join(sorted(known))}."
                raise key.wrong(f"a known field{self._of()}", hint=hint)
            found[key.text()] = value
        for name in required:
            if name not in found:
                raise self.wrong(f"a field {name}{self._of()}", found="none", hint=f"Add a line `{name}: ..`.")
        return found

    def entries(self) -> Iterator[tuple[Value, Value]]:
        """Give (key, value) of a mapping in the file's order; a repeated key is refused."""
        if not isinstance(self.node, yaml.MappingNode):
            raise self.wrong("fields with names")
        seen: dict[str, int] = {}
        for key_node, node in self.node.value:
            key = Value(self.file, key_node)
            name = key.text()
            if name in seen:
                raise key.wrong(f"each name once{self._of()}", found=f"{name} again, first in line {seen[name]}")
            seen[name] = key.line
            yield key, Value(self.file, node, f"{self.path}.{name}" if self.path else name)

    def items(self) -> list[Value]:
        """Give the values of a list."""
        if not isinstance(self.node, yaml.SequenceNode):
            raise self.wrong("a list", hint="Begin each line of it with `- `, or write `[a, b]`.")
        return [Value(self.file, node, f"{self.path}[{i}]") for i, node in enumerate(self.node.value)]

    def within(self) -> Iterator[Value]:
        """Give all values below this one, each before those in it."""
        parts: list[Value] = []
        if isinstance(self.node, yaml.MappingNode):
            parts = [value for _, value in self.entries()]
        elif self.is_list:
            parts = self.items()
        for part in parts:
            yield part
            yield from part.within()

    def text(self) -> str:
        if not isinstance(self.node, yaml.ScalarNode):
            raise self.wrong("a text")
        if self.is_empty:
            raise self.wrong("a value", found="none")
        if self.node.tag not in _TAGS:
            raise self.wrong("a value without a tag", found=self.node.tag)
        return str(self.node.value)

    def choice(self, known: Collection[str], what: str) -> str:
        """Give a text that is one of ``known``."""
        text = self.text()
        if text not in known:
            near = get_close_matches(text, known, n=1, cutoff=_NEAR)
            hint = f"Did you mean {near[0]}? " if near else ""
            raise self.wrong(what, hint=f"{hint}Known: {_listed(known)}." if known else "There is none.")
        return text

    def integer(self, *, least: int = 0, most: int = 2**63 - 1) -> int:
        text = self.text()
        if not _INTEGER.fullmatch(text) or not least <= int(text) <= most:
            limit = f"from {least} on" if most == 2**63 - 1 else f"from {least} to {most}"
            raise self.wrong(f"a whole number {limit}")
        return int(text)

    def flag(self) -> bool:
        text = self.text().lower()
        if text not in _FLAGS:
            raise self.wrong("true or false")
        return _FLAGS[text]

    def number(self) -> Fraction:
        """Give a number exactly as it is written."""
        text = self.text()
        if not _NUMBER.fullmatch(text):
            raise self.wrong("a number")
        return Fraction(text[:-1]) / 100 if text.endswith("%") else Fraction(text)

    def bounded(self, meta: Meta) -> float:
        """Give a number within some bounds."""
        number = self.number()
        if meta.gt is not None and number <= meta.gt:
            raise self.wrong(f"a number above {meta.gt}")
        if meta.ge is not None and number < meta.ge:
            raise self.wrong(f"a number from {meta.ge} on")
        return float(number)

    def probability(self) -> Fraction:
        """Give a share from 0 to 1, also written ``5%``, exact."""
        share = self.number()
        if not 0 <= share <= 1:
            raise self.wrong("a probability from 0 to 1")
        return share

    def duration_us(self, *, negative: bool = False) -> int:
        """Give a duration in µs."""
        text = self.text()
        signed = negative and text.startswith("-")
        us = duration_us(text.removeprefix("-") if signed else text)
        if us is None:
            hint = "A duration cannot be negative." if text.startswith("-") else "Units: us, ms, s, m, h."
            raise self.wrong("a duration such as 200ms or 3s", hint=hint)
        return -us if signed else us

    def _of(self) -> str:
        return f" of {self.path}" if self.path else ""

    def _told(self) -> str:
        if self.is_empty:
            return "nothing"
        if isinstance(self.node, yaml.ScalarNode):
            text = str(self.node.value)
            return text if len(text) <= 60 else f"{text[:57]}..."
        return "a list" if self.is_list else "fields with names"


def parsed(text: str, file: str) -> Value:
    """Give the one document of a YAML text.

    Raises ScenarioError: it is not YAML, is empty, or holds several documents.
    """
    try:
        documents = [d for d in yaml.compose_all(text, Loader=BoundedLoader) if d is not None]
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        at = mark.line + 1 if mark else text.count("\n", 0, getattr(error, "position", 0)) + 1
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
        if isinstance(error, TooMuch):
            raise ScenarioError(f"{file}:{at}: expected a scenario; found {problem}.") from error
        raise ScenarioError(f"{file}:{at}: expected YAML; found what is none: {problem}.", hint=_INDENT) from error
    except ValueError as error:
        raise ScenarioError(f"{file}:1: expected a scenario; found {error}.") from error
    if not documents:
        raise ScenarioError(
            f"{file}:1: expected a scenario; found an empty file.", hint="Compare it with `data/scenarios/README.md`."
        )
    if len(documents) > 1:
        second = Value(file, documents[1])
        raise second.wrong(
            "one scenario in a file", found="a second document", hint="Write it to a YAML file of its own, `*.yaml`."
        )
    return Value(file, documents[0])


_INDENT = "Look for a missing colon, a tab, or a line that is indented differently from its neighbours."


def _listed(names: Collection[str], most: int = 12) -> str:
    """Names for a hint; above ``most`` as ranges, such as `tikv-1 to tikv-3`: no kind is cut off."""
    if len(names) <= most:
        return ", ".join(sorted(names))
    numbers, ranges = dict[str, list[int]](), list[str]()
    for name in names:
        family = name.rstrip("0123456789")
        numbers.setdefault(family, []).extend([int(name[len(family) :])] if name != family else [])
    for family, of in sorted(numbers.items()):
        ranges += [family] * (family in names)
        if of:
            ranges.append(f"{family}{min(of)}" + (f" to {family}{max(of)}" if len(of) > 1 else ""))
    return ", ".join(ranges[:most]) + (f", .. ({len(names)} names)" if len(ranges) > most else "")


def replace_value(top: Value, path: str, text: str) -> None:
    """Put another value where ``path`` (``settings.tick``) leads, sections on the way included.

    Raises ScenarioError: the text is no YAML, or the path leads through what is no section.
    """
    *sections, name = path.split(".")
    value = parsed(text, f"{path}={text}").node
    for section in sections:
        top = _section(top, section)
    if not isinstance(top.node, yaml.MappingNode):
        raise top.wrong(f"fields with names, for {path}")
    value.start_mark = value.end_mark = top.node.start_mark
    entries = [(k, v) for k, v in top.node.value if k.value != name]
    top.node.value = [*entries, (_key(name, top.node), value)]


def _section(top: Value, name: str) -> Value:
    for key, value in top.entries():
        if key.text() == name:
            return value
    fresh = yaml.MappingNode(f"{PLAIN}map", [], top.node.start_mark, top.node.end_mark)
    top.node.value.append((_key(name, top.node), fresh))
    return Value(top.file, fresh, name)


def _key(name: str, node: yaml.Node) -> yaml.ScalarNode:
    return yaml.ScalarNode(f"{PLAIN}str", name, node.start_mark, node.end_mark)


# Sections by types.

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
    cluster: Any = None  # the section, read by the model

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
        meta = next((note for note in notes if isinstance(note, Meta)), Meta())
        if name.endswith("_us") and kind is int:
            us = value.duration_us()
            if us < (meta.ge or 0):
                raise value.wrong(f"a duration of at least {shown(int(meta.ge or 0))}")
            return us
        if kind is int:
            least, most = self.least if meta.ge is None else meta.ge, meta.le
            return value.integer(least=int(least), **({} if most is None else {"most": int(most)}))
        if kind is float:
            return value.bounded(meta)
        return self._among(name, kind, value) if get_origin(kind) or name in self.choices else _PLAIN[kind](value)

    def _among(self, name: str, kind: Any, value: Value) -> Any:
        """Read one of some texts, some of them, or a list of other values."""
        if get_origin(kind) is frozenset:
            return frozenset(one.choice(self.choices.get(name, ()), _SETTING) for one in value.items())
        if get_origin(kind) is tuple:
            unit, items, kinds = "_us" if name.endswith("_us") else "", value.items(), get_args(kind)
            if kinds[-1] is not Ellipsis and len(items) != len(kinds):
                raise value.wrong(f"a list of {len(kinds)}", found=f"one of {len(items)}")
            return tuple(self.field(unit, kinds[0], one) for one in items)
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
    if name.endswith("_us") and get_origin(kind) is not tuple:
        found = DURATION
    elif get_origin(kind) is Literal or name in reader.choices:
        found = {"enum": [*(get_args(kind) if get_origin(kind) is Literal else reader.choices[name])]}
        found = {"type": "array", "items": found} if get_origin(kind) is frozenset else found
    elif kind in _JSON:
        meta = next((note for note in notes if isinstance(note, Meta)), Meta())
        found = _JSON[kind] | {
            k: v
            for k, v in {
                "minimum": meta.ge,
                "maximum": meta.le,
                "exclusiveMinimum": meta.gt,
            }.items()
            if v is not None
        }
    elif any(isinstance(note, ReadBy) for note in notes) or hasattr(kind, "read_from"):
        return found
    elif get_origin(kind) is tuple:
        unit = "_us" if name.endswith("_us") else ""
        found = {"type": "array", "items": json_type(unit, get_args(kind)[0], reader)}
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


_PLAIN: Mapping[Any, Callable[[Value], Any]] = MappingProxyType(
    {bool: Value.flag, str: Value.text, float: lambda value: float(value.number()), Fraction: Value.number}
)
