"""TiDB's table filter: the ``matcher`` of a dispatch rule (TiDB ``pkg/util/table-filter``)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

from ticdc_lab.errors import DispatchError

_CLASS = re.compile(r"\[!?(?:\\[^0-9a-zA-Z]|[^\\\]])+\]")
_LOOK_AROUND = re.compile(r"\(\?(?:<?[=!])")


@dataclass(frozen=True, slots=True)
class Pattern:
    """A name as written, or a regular expression that Java and Python read alike."""

    text: str
    is_regex: bool

    def column(self, name: Column, *, case_sensitive: bool) -> Column:
        """Whether ``name`` matches, as an expression."""
        if self.is_regex:
            return F.lit(True) if self.text == "(?s)^.*$" else name.rlike(self.text if case_sensitive else self._folded)
        return name == self.text if case_sensitive else F.lower(name) == self.text.lower()

    def matches(self, name: str, *, case_sensitive: bool) -> bool:
        """Whether ``name`` matches."""
        if self.is_regex:
            return re.search(self.text if case_sensitive else self._folded, name) is not None
        return self.text == name if case_sensitive else self.text.lower() == name.lower()

    @property
    def _folded(self) -> str:
        return "(?i)" + self.text


@dataclass(frozen=True, slots=True)
class TableFilter:
    """A parsed matcher: of all its patterns, the last one that matches a table decides; ``!`` excludes.

    Examples
    --------
    >>> found = TableFilter.parse(["shop.*", "!shop.audit"])
    >>> found.matches("shop", "orders"), found.matches("shop", "audit")
    (True, False)
    """

    rules: tuple[tuple[bool, Pattern, Pattern], ...]
    case_sensitive: bool = False

    @classmethod
    def parse(cls, matcher: Iterable[str], *, case_sensitive: bool = False) -> TableFilter:
        """Parse patterns such as ``shop.*``, ``!shop.audit``, ``db?.t[0-9]``, ``/^re/.*`` or ```a b`.c``.

        Raises
        ------
        DispatchError
            A pattern is malformed; patterns from files (``@file``) are not read.
        """
        rules = (_rule(line.strip(" \t")) for line in matcher)
        return cls(tuple(r for r in rules if r is not None), case_sensitive)

    def column(self) -> Column:
        """Whether the event's table matches (boolean), from ``schema_name`` and ``table_name``."""
        out = F.lit(False)
        for positive, schema, table in self.rules:
            hit = schema.column(F.col("schema_name"), case_sensitive=self.case_sensitive) & table.column(
                F.col("table_name"), case_sensitive=self.case_sensitive
            )
            out = F.when(hit, F.lit(positive)).otherwise(out)
        return out

    def matches(self, schema_name: str, table_name: str) -> bool:
        """Whether a table matches."""
        for positive, schema, table in reversed(self.rules):
            if schema.matches(schema_name, case_sensitive=self.case_sensitive) and table.matches(
                table_name, case_sensitive=self.case_sensitive
            ):
                return positive
        return False


def _rule(line: str) -> tuple[bool, Pattern, Pattern] | None:
    if not line or line.startswith("#"):
        return None
    if line.startswith("@"):
        raise DispatchError(f"The matcher {line!r} names a file; files of patterns are not read.")
    body = line.removeprefix("!")
    schema, rest = _pattern(body, line)
    if not rest.startswith("."):
        raise DispatchError(f"The matcher {line!r} lacks a '.' between schema and table patterns.")
    table, rest = _pattern(rest[1:], line)
    if rest:
        raise DispatchError(f"The matcher {line!r} has stray characters after its table pattern: {rest!r}.")
    return not line.startswith("!"), schema, table


def _pattern(text: str, line: str) -> tuple[Pattern, str]:
    """One pattern from the start of ``text``, and what follows it."""
    if text[:1] == "/":
        found = re.match(r"/((?:\\.|[^/])+)/", text)
        if found is None:
            raise DispatchError(f"The matcher {line!r} holds an incomplete regular expression.")
        return Pattern(_checked(found[1], line), True), text[found.end() :]
    if text[:1] in ('"', "`"):
        q = text[0]
        found = re.match(f"{q}((?:{q}{q}|[^{q}])+){q}", text)
        if found is None:
            raise DispatchError(f"The matcher {line!r} holds an incomplete quoted name.")
        return Pattern(found[1].replace(q + q, q), False), text[found.end() :]
    return _wildcard(text, line)


def _wildcard(text: str, line: str) -> tuple[Pattern, str]:
    literal, regex, is_regex, i = "", "", False, 0
    while i < len(text) and text[i] != ".":
        c = text[i]
        if c == "\\":
            escaped = text[i + 1 : i + 2]
            if not escaped or (escaped.isascii() and escaped.isalnum()):
                raise DispatchError(f"The matcher {line!r} escapes {escaped!r}, which cannot be escaped.")
            literal, regex, i = literal + escaped, regex + re.escape(escaped), i + 2
        elif c in "*?":
            is_regex, regex, i = True, regex + (".*" if c == "*" else "."), i + 1
        elif c == "[":
            found = _CLASS.match(text, i)
            if found is None:
                raise DispatchError(f"The matcher {line!r} holds a malformed character class.")
            is_regex, regex, i = True, regex + _class(found[0], line), found.end()
        elif c in "$_" or c.isalnum() or not c.isascii():
            literal, regex, i = literal + c, regex + re.escape(c), i + 1
        else:
            raise DispatchError(f"The matcher {line!r} holds the unexpected character {c!r}.")
    if i == 0:
        raise DispatchError(f"The matcher {line!r} lacks a pattern.")
    return (Pattern(_checked(f"(?s)^{regex}$", line), True) if is_regex else Pattern(literal, False)), text[i:]


def _class(glob: str, line: str) -> str:
    negated = glob.startswith("[!")
    body = glob[2 if negated else 1 : -1]
    if not body:
        raise DispatchError(f"The matcher {line!r} holds an empty character class.")
    # ^ is not special in a glob; [ and & are special in Java
    body = re.sub(r"(?<!\\)([\[&^])", r"\\\1", body)
    return f"[{'^' if negated else ''}{body}]"


def _checked(regex: str, line: str) -> str:
    try:
        re.compile(regex)
    except re.error as e:
        raise DispatchError(f"The matcher {line!r} holds an invalid regular expression: {e}.") from e
    if _LOOK_AROUND.search(regex):
        raise DispatchError(f"The matcher {line!r} looks around, which Go's regular expressions cannot.")
    return regex
