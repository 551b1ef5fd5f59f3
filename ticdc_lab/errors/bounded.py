"""YAML, TOML and JSON that people write, refused by size, depth and number of values before a parser builds them.

The parsers' memory and time grow faster than the text: a YAML file of 9 MB took 1.6 GB, so did a TOML key of 20,000
parts. No file of this package's kinds reaches the limits; ``TICDC_LAB_TEXT_LIMITS`` raises them.
"""

from __future__ import annotations

import codecs
import json
import os
import re
import tomllib
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import IO, Any

import yaml

LIMITS_VARIABLE = "TICDC_LAB_TEXT_LIMITS"
"""Environment variable that changes limits, as in ``bytes=4000000,values=100000``."""


@dataclass(frozen=True, slots=True)
class TextLimits:
    """How large a text of settings may be."""

    bytes: int = 1_000_000  # of the whole text
    depth: int = 64  # lists and sections within each other; in TOML also the parts of a dotted key
    values: int = 20_000  # of a YAML text, each repeated one (``*alias``) counted as often as it occurs

    @classmethod
    def in_force(cls) -> TextLimits:
        """Give the limits, with what the environment changes.

        Raises ValueError: the variable names what is no limit, or gives it no whole number.
        """
        known = {f.name for f in fields(cls)}
        changed: dict[str, int] = {}
        for part in filter(None, os.environ.get(LIMITS_VARIABLE, "").split(",")):
            name, _, number = part.strip().partition("=")
            if name not in known or not re.fullmatch(r"\d{1,12}", number):
                names = ", ".join(sorted(known))
                raise ValueError(f"{LIMITS_VARIABLE} has {part!r}; expected one of {names}, = and a number")
            changed[name] = int(number)
        return replace(cls(), **changed)


def read_bounded(path: str | Path) -> str:
    """Read a text file that is not larger than the limit: UTF-8, or what its first bytes name, as of Windows' tools.

    Raises OSError, UnicodeDecodeError: it cannot be read. ValueError: it is larger; in words.
    """
    most = TextLimits.in_force().bytes
    with open(path, "rb") as file:
        data = file.read(most + 1)  # never the whole of a file that is refused, nor a device without end
    _refuse_large(len(data), most)
    return data.decode("utf-16" if data[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "utf-8-sig")


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML within the limits. Raises ValueError: it is no TOML, or larger than the limits; in words."""
    limits = TextLimits.in_force()
    _refuse_large(len(text.encode()), limits.bytes)
    # tomllib's work grows with the square of a key's parts, so they are counted before it begins
    part = r"""(?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*')"""
    if long := re.search(rf"(?m)(?:^|[\[{{,])[ \t]*{part}(?:[ \t]*\.[ \t]*{part}){{{limits.depth}}}", text):
        line = text.count("\n", 0, long.end()) + 1
        raise ValueError(_over(f"a key of more than {limits.depth} parts in line {line}", "depth"))
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError(_over("lists within lists without end", "depth")) from None
    except tomllib.TOMLDecodeError:
        raise
    except ValueError:  # int() refuses the text, not TOML
        raise ValueError(_DIGITS) from None


def parse_json(text: str) -> Any:
    """Parse JSON within the limits. Raises ValueError: it is no JSON, or larger than the limits; in words."""
    limits = TextLimits.in_force()
    _refuse_large(len(text.encode(errors="replace")), limits.bytes)
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("lists within lists without end") from None
    except json.JSONDecodeError:
        raise
    except ValueError:  # int() refuses the text, not JSON
        raise ValueError(_DIGITS) from None


PRINTED = 64
"""What a program printed or recorded may be so many times as large as what people write."""


def read_printed(stream: IO[bytes]) -> bytes:
    """Read all of what a program printed, unpacked or not, where it is not larger than its limit.

    Raises ValueError: it is larger; in words.
    """
    most = TextLimits.in_force().bytes
    data = stream.read(PRINTED * most + 1)
    if len(data) > PRINTED * most:
        raise ValueError(f"more than {PRINTED} times {_over(f'{most:,} bytes', 'bytes')}")
    return data


def parse_documents(text: str) -> list[tuple[str, Any]]:
    """Parse JSON documents that follow each other, each with the text before it, as a session of a tool shows them.

    Raises ValueError: one of them is no JSON; in words.
    """
    found, at, decoder = [], 0, json.JSONDecoder()
    try:
        while (begin := _NEXT.match(text, at) or _BEGINS.search(text, at)) is not None:
            before = text[at : begin.start(1)]
            one, at = decoder.raw_decode(text, begin.start(1))
            found.append((before, one))
    except RecursionError:
        raise ValueError("lists within lists without end") from None
    except json.JSONDecodeError:
        raise
    except ValueError:  # int() refuses the text, not JSON
        raise ValueError(_DIGITS) from None
    return found


OBJECT_OR_LIST = r"""(\{|\[(?=\s*(?:[\[{"\]]|null|-?\d+\s*[,\]]|\Z)))"""
"""How a document begins; a line of a log, ``[2024/01/01 ..] [INFO]``, begins otherwise."""
_BEGINS = re.compile(rf"^[ \t\r»>\ufeff]*{OBJECT_OR_LIST}", re.MULTILINE)
"""Where a document begins: a tool's words before it, and the prompt of a session, are skipped."""
_NEXT = re.compile(rf"[ \t]*{OBJECT_OR_LIST}")
"""One may follow on the same line."""

_DIGITS = "a number of thousands of digits, which no setting needs"


class TooMuch(yaml.composer.ComposerError):
    """A YAML text is over a limit."""


class BoundedLoader(yaml.SafeLoader):
    """PyYAML's safe loader, which stops as soon as a text is larger than the limits."""

    def __init__(self, stream: str) -> None:
        self._limits = TextLimits.in_force()
        self._depth = self._values = 0
        self._sizes: dict[int, int] = {}
        _refuse_large(len(stream.encode(errors="replace")), self._limits.bytes)
        super().__init__(stream)

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Compose a node, counted; what an alias repeats counts again."""
        mark, before = self.peek_event().start_mark, self._values  # type: ignore[no-untyped-call]
        repeats = self.check_event(yaml.AliasEvent)
        self._depth += 1
        self._values += 1
        if self._depth > self._limits.depth:
            raise _refused(mark, f"lists within lists, more than {self._limits.depth} deep", "depth")
        node: yaml.Node | None = super().compose_node(parent, index)
        self._depth -= 1
        if repeats:
            if id(node) not in self._sizes:
                raise _refused(mark, "a list or section that contains itself", "depth")
            self._values += self._sizes[id(node)]
        else:
            self._sizes[id(node)] = self._values - before
        if self._values > self._limits.values:
            raise _refused(mark, f"more than {self._limits.values:,} values", "values")
        return node


def _refuse_large(found: int, most: int) -> None:
    if found > most:
        raise ValueError(_over(f"more than {most:,} bytes", "bytes"))


def _refused(mark: yaml.Mark, found: str, limit: str) -> TooMuch:
    return TooMuch(None, None, _over(found, limit), mark)


def _over(found: str, limit: str) -> str:
    return f"{found}, which is over a limit ({LIMITS_VARIABLE}={limit}=N raises it)"
