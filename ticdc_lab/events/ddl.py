"""MySQL and TiDB DDL as words with a cursor: what :mod:`ticdc_lab.facts.catalog` reads statements with.

A general SQL parser is of little help here: sqlglot keeps whole statements as opaque commands (RENAME TABLE, most
partition clauses), fails on ADD PARTITION and drops TiDB's executable comments, which define how a key is stored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache

from ticdc_lab.errors import ContractError


class DDLSyntaxError(ContractError):
    """A DDL text is not understood."""


@dataclass(frozen=True, slots=True)
class Word:
    """One token; ``kind`` is ``word`` (also a sign), ``name`` for a quoted identifier, or ``text`` for a literal."""

    text: str
    kind: str = "word"


# the content of `/*T![feature] x */` and `/*!40101 x */` is executed; other comments and white space are skipped
_TOKEN = re.compile(
    r"""
    (?P<space> \s+ | --(?=\s|$)[^\n]* | \#[^\n]* | /\*(?:T!(?:\[[^\]]*\])?|!\d*) | /\*.*?\*/ | \*/ )
  | ` (?P<name> (?:[^`]|``)* ) `
  | (?P<quote>['"]) (?P<text> (?: \\. | (?P=quote)(?P=quote) | (?!(?P=quote)|\\). )* ) (?P=quote)
  | (?P<word> [\w$@]+ | [^\w\s`'"] )
    """,
    re.VERBOSE | re.DOTALL,
)


def words_of(query: str) -> list[Word]:
    """Words of a DDL text, with the content of executable comments in place."""
    words: list[Word] = []
    at = 0
    while at < len(query):
        found = _TOKEN.match(query, at)
        if found is None:
            raise DDLSyntaxError(f"a quote is not closed: {query[at : at + 40]!r}")
        at = found.end()
        if found["name"] is not None:
            words.append(Word(found["name"].replace("``", "`"), "name"))
        elif found["text"] is not None:
            words.append(Word(found["text"], "text"))
        elif found["word"] not in (None, ";"):
            words.append(Word(found["word"]))
    return words


@dataclass(slots=True)
class Cursor:
    """A position in a list of words; keywords are compared in any case and never match quoted names or texts."""

    words: list[Word]
    at: int = field(default=0)

    @property
    def done(self) -> bool:
        """Whether no word is left."""
        return self.at >= len(self.words)

    def peek(self, ahead: int = 0) -> str:
        """Upper-case text of a word; empty for a quoted name, a text, and past the end."""
        if self.at + ahead >= len(self.words):
            return ""
        word = self.words[self.at + ahead]
        return word.text.upper() if word.kind == "word" else ""

    def take(self, *words: str) -> bool:
        """Pass the words if they come next, one after the other."""
        if all(self.peek(i) == w for i, w in enumerate(words)):
            self.at += len(words)
            return True
        return False

    def take_any(self, *words: str) -> str:
        """Pass one of the words and return it; empty if none comes next."""
        word = self.peek()
        if word and word in words:
            self.at += 1
            return word
        return ""

    def expect(self, *words: str) -> None:
        """Pass the words or raise."""
        if not self.take(*words):
            raise DDLSyntaxError(f"expected {' '.join(words)}; found {self.rest()[:40]!r}")

    def name(self) -> str:
        """Pass one identifier."""
        if self.done or self.words[self.at].kind == "text" or self.peek() in ("(", ")", ",", "."):
            raise DDLSyntaxError(f"expected a name; found {self.rest()[:40]!r}")
        self.at += 1
        return self.words[self.at - 1].text

    def table(self, default_schema: str) -> tuple[str, str]:
        """Pass a table name, qualified or not."""
        first = self.name()
        return (first, self.name()) if self.take(".") else (default_schema, first)

    def skip(self) -> None:
        """Pass one word, or a whole pair of parentheses."""
        depth = 0
        while not self.done:
            word = self.peek()
            self.at += 1
            depth += (word == "(") - (word == ")")
            if depth <= 0:
                return

    def inside(self) -> Cursor:
        """Pass a pair of parentheses and return a cursor over what is between."""
        if self.peek() != "(":
            raise DDLSyntaxError(f"expected '('; found {self.rest()[:40]!r}")
        start = self.at
        self.skip()
        if self.peek(-1) != ")":
            raise DDLSyntaxError("a parenthesis is not closed")
        return Cursor(self.words[start + 1 : self.at - 1])

    def parts(self) -> Iterator[Cursor]:
        """The rest, split at commas outside parentheses."""
        start = self.at
        while not self.done:
            if self.peek() == ",":
                yield Cursor(self.words[start : self.at])
                start = self.at + 1
            self.skip()
        yield Cursor(self.words[start:])

    def rest(self) -> str:
        """The text that is left, for messages."""
        return " ".join(t.text for t in self.words[self.at :])


# Which tables a DDL event orders rows against.

Blocked = tuple[tuple[str | None, str | None], ...]


@lru_cache(maxsize=4096)
def blocked_tables(schema_name: str | None, table_name: str | None, query: str | None) -> Blocked:
    """Tables that a DDL event orders rows against, as schema and table; table None is the whole schema.

    The event's own table; a rename also blocks its other names, an exchange of partitions the other table (golden
    README section 6: a DDL is ordered only against the tables it blocks). What is not understood names no further one.

    Examples
    --------
    >>> blocked_tables("shop", "new", "RENAME TABLE `old` TO `new`, `c` TO `d`")
    (('shop', 'new'), ('shop', 'old'), ('shop', 'c'), ('shop', 'd'))
    >>> blocked_tables("shop", "", "DROP DATABASE shop")
    (('shop', None),)
    """
    found: list[tuple[str | None, str | None]] = [(schema_name, table_name or None)]
    with suppress(DDLSyntaxError):
        found += _named(query or "", schema_name or "")
    return tuple(dict.fromkeys(found))


def _named(query: str, schema_name: str) -> Iterator[tuple[str, str]]:
    """Tables named after RENAME TABLE, ALTER TABLE, RENAME TO and WITH TABLE."""
    cursor = Cursor(words_of(query))
    if cursor.take("RENAME", "TABLE") or cursor.take("RENAME", "TABLES"):
        for part in cursor.parts():
            yield part.table(schema_name)
            part.expect("TO")
            yield part.table(schema_name)
    elif cursor.take("ALTER", "TABLE"):
        yield cursor.table(schema_name)
        while not cursor.done:
            if cursor.take("WITH", "TABLE") or (cursor.take("RENAME") and cursor.take_any("TO", "AS")):
                yield cursor.table(schema_name)
            else:
                cursor.skip()


def quoted(name: str) -> str:
    """An identifier."""
    return '"' + name.replace('"', '""') + '"'


_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "b": "\b", "Z": "\x1a"}


def unescaped(text: str) -> str:
    """What stands between the quotes of a literal, as MySQL reads it.

    Examples
    --------
    >>> unescaped("it''s")
    "it's"
    """
    return re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), text.replace("''", "'"), flags=re.DOTALL)


def literal(text: str) -> str:
    """A text between single quotes."""
    return "'" + text.replace("'", "''") + "'"
