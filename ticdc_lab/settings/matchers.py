"""Which tables and columns a changefeed's rules take: TiDB's table filters and column filters.

A filter that is malformed is a :class:`ticdc_lab.errors.DispatchError`, as TiCDC refuses the changefeed.
References: TiDB, ``pkg/util/table-filter``; pingcap/ticdc, ``downstreamadapter/sink/columnselector``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ticdc_lab.errors import DispatchError, UnreadMatcherError

_CLASS = re.compile(r"\[!?(?:\\[^0-9a-zA-Z]|[^\\\]])+\]")
_ESCAPE = r"\\(?:[1-7][0-7]+|[pP](?:\{[^}]*\}|.)|x\{[^}]*\}|.)"
_GROUP, _REPEAT = r"\(\?(?:P?<?[=!>]|[imsU-]+[:)]|P?<[0-9A-Za-z_]+>|.)", r"(?:[*+?]|\{\d+(?:,\d*)?\})\??"
_TOKEN, _NAMED = re.compile(f"{_ESCAPE}|{_GROUP}|{_REPEAT}|.", re.S), re.compile(r"\(\?P?<\w+>", re.A)
_IN_CLASS = re.compile(rf"{_ESCAPE}|\[:\^?\w+:\]|.", re.S)
_ASCII = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "ascii": r"\x00-\x7f", "blank": r"\t ", "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9", "graph": "!-~", "lower": "a-z", "print": " -~", "punct": r"!-/:-@\[-`{-~", "space": r"\t-\r ",
    "upper": "A-Z", "word": "0-9A-Za-z_", "xdigit": "0-9A-Fa-f",
}  # fmt: skip
"""Go's named classes."""

_SHORT = {"d": "0-9", "w": "0-9A-Za-z_", "s": r"\t\n\f\r "}
_SPECIAL = "\\.^$*+?{}[]|()&~-"
_MOST_TIMES = 1000


@dataclass(frozen=True, slots=True)
class Pattern:
    """A name as written, or a regular expression."""

    text: str
    is_regex: bool

    def matches(self, name: str, *, case_sensitive: bool) -> bool:
        """Whether ``name`` matches."""
        if self.is_regex:
            return re.search(self.text if case_sensitive else "(?i)" + self.text, name) is not None
        return self.text == name if case_sensitive else self.text.lower() == name.lower()


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

        Raises DispatchError: a pattern is malformed; patterns from files (``@file``) are not read.
        """
        return _parsed(tuple(matcher), case_sensitive)

    def matches(self, schema_name: str, table_name: str) -> bool:
        """Whether a table matches."""
        for positive, schema, table in reversed(self.rules):
            if schema.matches(schema_name, case_sensitive=self.case_sensitive) and table.matches(
                table_name, case_sensitive=self.case_sensitive
            ):
                return positive
        return False


@lru_cache(maxsize=4_096)  # the rules of a changefeed are tried on each of its tables
def _parsed(matcher: tuple[str, ...], case_sensitive: bool) -> TableFilter:
    return TableFilter(tuple(map(_rule, filter(_is_rule, (line.strip(" \t") for line in matcher)))), case_sensitive)


@dataclass(frozen=True, slots=True)
class ColumnFilter:
    """Columns of a column selector, as TiDB reads them: in any case, and the last pattern that matches decides.

    Examples
    --------
    >>> found = ColumnFilter.parse(["*", "!id"])
    >>> found.matches("a"), found.matches("ID")
    (True, False)
    """

    rules: tuple[tuple[bool, Pattern], ...]

    @classmethod
    def parse(cls, columns: Iterable[str]) -> ColumnFilter:
        """Parse patterns such as ``*``, ``!secret`` or ``c?``; a malformed one is a :class:`DispatchError`."""
        found = []
        for line in filter(_is_rule, (c.strip(" \t") for c in columns)):
            pattern, rest = _pattern(line.removeprefix("!"), line)
            if rest:
                raise DispatchError(f"The column pattern {line!r} has stray characters: {rest!r}.")
            found.append((not line.startswith("!"), pattern))
        return cls(tuple(found))

    def matches(self, name: str) -> bool:
        """Whether the column stays."""
        return next((keeps for keeps, p in reversed(self.rules) if p.matches(name, case_sensitive=False)), False)


def matcher_of(schema: str, table: str) -> str:
    """A matcher that means this table and no other.

    Examples
    --------
    >>> print(matcher_of("shop", "a-b"))
    shop.`a-b`
    """
    return ".".join(
        n if n.isascii() and n.replace("_", "a").isalnum() else f"`{n.replace('`', '``')}`" for n in (schema, table)
    )


def _is_rule(line: str) -> bool:
    """Whether a line of a matcher is no comment."""
    if line.startswith("@"):
        raise UnreadMatcherError(f"The matcher {line!r} names a file; files of patterns are not read.")
    return bool(line) and not line.startswith("#")


def _rule(line: str) -> tuple[bool, Pattern, Pattern]:
    body = line.removeprefix("!")
    schema, rest = _pattern(body, line)
    if not rest.startswith("."):
        raise DispatchError(f"The matcher {line!r} has no '.' between schema and table patterns.")
    table, rest = _pattern(rest[1:], line)
    if rest:
        raise DispatchError(f"The matcher {line!r} has stray characters after its table pattern: {rest!r}.")
    return not line.startswith("!"), schema, table


def _pattern(text: str, line: str) -> tuple[Pattern, str]:
    """One pattern from the start of ``text``, and what follows it."""
    if text[:1] == "/":
        found = re.match(r"/((?:\\.|[^/])+)/", text)
        if found is None:
            raise DispatchError(f"The matcher {line!r} has an incomplete regular expression.")
        return Pattern(_checked(_of_go(found[1], line), line), True), text[found.end() :]
    if text[:1] in ('"', "`"):
        q = text[0]
        found = re.match(f"{q}((?:{q}{q}|[^{q}])+){q}", text)
        if found is None:
            raise DispatchError(f"The matcher {line!r} has an incomplete quoted name.")
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
        elif c == "$":  # which TiDB does not escape beside a wildcard: there it is the end
            literal, regex, i = literal + c, regex + c, i + 1
        elif c == "[":
            found = _CLASS.match(text, i)
            if found is None:
                raise DispatchError(f"The matcher {line!r} has a malformed character class.")
            is_regex, regex, i = True, regex + _class(found[0], line), found.end()
        elif c == "_" or c.isalnum() or not c.isascii():
            literal, regex, i = literal + c, regex + re.escape(c), i + 1
        else:
            raise DispatchError(f"The matcher {line!r} has the unexpected character {c!r}.")
    if not text:
        raise DispatchError(f"The matcher {line!r} has no pattern.")
    return (Pattern(_checked(f"(?s)^{regex}$", line), True) if is_regex else Pattern(literal, False)), text[i:]


def _class(glob: str, line: str) -> str:
    negated = glob.startswith("[!")
    body = glob[2 if negated else 1 : -1]
    if not body:
        raise DispatchError(f"The matcher {line!r} has an empty character class.")
    # ^ is not special in a glob; of the others Python and Java make operations on classes
    body = re.sub(r"(?<!\\)([\[&|~^]|^-(?=-))", r"\\\1", body)
    return f"[{'^' if negated else ''}{body}]"


def _checked(regex: str, line: str) -> str:
    try:
        re.compile(regex)
    except re.error as e:
        raise DispatchError(f"The matcher {line!r} has an invalid regular expression: {e}.") from e
    return regex


def _of_go(regex: str, line: str) -> str:
    """Go's regular expression as Python's; references: google/re2, ``doc/syntax.txt``; Go, ``regexp/syntax``."""
    out, i, begun, repeats = [], 0, None, False
    if r"\z" in regex and re.search(r"\(\?[isU]*m", regex):
        raise UnreadMatcherError(f"The matcher {line!r} has \\z and lines, which Go knows and Python does not.")
    while i < len(regex):
        found = (_TOKEN if begun is None else _IN_CLASS).match(regex, i)
        assert found is not None
        token, i = found[0], found.end()
        was_repeat, repeats = repeats, False
        if token[0] == "\\":
            out.append(_escape(token, line, in_class=begun is not None))
        elif begun is not None:
            if token == "]" and i - 1 > begun:
                begun = None
            out.append(rf"\{token}" if token in "-]" and i - 1 == begun else _in_class(token, line))
        elif token == "[":
            begun = i + (regex[i : i + 1] == "^")  # where a bracket that closes, or a hyphen, is literal
            out.append(token)
        elif token.startswith("(?"):
            out.append(_group(token, line, is_first=not out))
        elif token[0] in "*+?" or (token[0] == "{" and len(token) > 1):
            if was_repeat or any(int(n) > _MOST_TIMES for n in re.findall(r"\d+", token)):
                raise DispatchError(f"The matcher {line!r} has {token}, which Go's regular expressions have not.")
            repeats = True
            out.append(token)
        else:
            out.append(rf"(?:{token})" if token in "^$" else r"\{" if token == "{" else token)
    return "".join(out)


def _escape(token: str, line: str, *, in_class: bool) -> str:
    kind = token[1:2]
    code = re.fullmatch(r"\\x\{([0-9A-Fa-f]+)\}", token)
    if (
        (kind in "123456789ZuUN" and len(token) == 2) or (kind in "AzbB" and in_class) or not kind.isascii()
        or (token.startswith(r"\x{") and (code is None or int(code[1], 16) > sys.maxunicode))
    ):  # fmt: skip
        raise DispatchError(f"The matcher {line!r} has {token}, which Go's regular expressions have not.")
    if kind in "1234567pPQEC" or (kind in "DWS" and in_class):
        raise UnreadMatcherError(f"The matcher {line!r} has {token}, which Go knows and Python does not.")
    if kind.lower() in _SHORT:
        own = _SHORT[kind.lower()]
        return own if in_class else f"[{'' if kind.islower() else '^'}{own}]"
    if code is not None:
        return re.escape(chr(int(code[1], 16)))
    if kind in "bBAz" and not in_class:  # in a group, as Go repeats them
        return rf"(?a:\{kind})" if kind in "bB" else r"(?:\A)" if kind == "A" else "(?:$)"
    if kind == "v":  # Java's is a class
        return r"\x0b"
    return token if kind.isalnum() or kind in _SPECIAL else kind


def _in_class(token: str, line: str) -> str:
    if not token.startswith("[:"):
        return f"\\{token}" if token in "[&|~" else token  # which Python will read as operations on classes
    name = token[2:-2]
    if name.removeprefix("^") not in _ASCII:
        raise DispatchError(f"The matcher {line!r} has the class {token}, which Go's regular expressions have not.")
    if name.startswith("^"):
        raise UnreadMatcherError(f"The matcher {line!r} has {token}, which Go knows and Python does not.")
    return _ASCII[name]


def _group(token: str, line: str, *, is_first: bool) -> str:
    if token in ("(?=", "(?!", "(?<=", "(?<!"):
        raise DispatchError(f"The matcher {line!r} looks around, which Go's regular expressions cannot.")
    if _NAMED.fullmatch(token):
        return "("  # a name matches nothing, and in Go several groups may have the same
    if token[-1] in ":)" and token != "(?:" and ("U" in token or (token[-1] == ")" and ("-" in token or not is_first))):
        raise UnreadMatcherError(f"The matcher {line!r} has {token}, which Go knows and Python does not.")
    if token[-1] not in ":)":
        raise DispatchError(f"The matcher {line!r} has {token}, which Go's regular expressions have not.")
    return token


def accepted(
    members: Sequence[Mapping[str, Any]], *, case_sensitive: bool
) -> Iterator[tuple[Mapping[str, Any], TableFilter, ColumnFilter]]:
    """Event filters or column selectors with the tables and columns that each is for, but those that TiCDC refuses."""
    for member in members:
        with suppress(DispatchError):
            yield parsed(member, case_sensitive=case_sensitive)


def parsed(member: Mapping[str, Any], *, case_sensitive: bool) -> tuple[Mapping[str, Any], TableFilter, ColumnFilter]:
    """The same of one; raises DispatchError if TiCDC refuses it."""
    tables = TableFilter.parse(member.get("matcher", ()), case_sensitive=case_sensitive)
    return member, tables, ColumnFilter.parse(member.get("columns", ()))
