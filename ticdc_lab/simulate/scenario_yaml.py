"""The values of a YAML file, each with its line, so that every mistake is reported with its place.

Nothing is constructed from the file but texts, integers and what is read from them, durations among it: tags have no
effect. :func:`replace_value` puts other values in, for comparisons and sweeps.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from fractions import Fraction

import yaml

from ticdc_lab.errors import ScenarioError
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
            near = get_close_matches(text, known, n=1)
            hint = f"Did you mean {near[0]}? " if near else ""
            raise self.wrong(what, hint=f"{hint}Known: {_listed(known)}.")
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
    few = sorted(names)[:most]
    return ", ".join(few) + (f", .. ({len(names)} in all)" if len(names) > most else "")


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
