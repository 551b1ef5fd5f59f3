"""Take messages out of other JSON, or out of a hex dump; what a hint names, with the digits of each number.

``python -m ticdc_lab.sources.taken PATH [NAME=PATH ..] < FILE`` prints a line for each message: the object or text at
``PATH``, with members from elsewhere. A path is jq's: ``."hits"[]."_source"``. jq before 1.7 rounds a commit_ts.
"""

from __future__ import annotations

import json
import re
import sys
from base64 import b64decode, b64encode
from binascii import Error as BadBase64
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, repeat
from typing import Any

_STEP = re.compile(r'\.("(?:[^"\\]|\\.)*")|\.?\[(\d*)\]')
_BYTES = "(?:[0-9a-fA-F]{2} ?)+"
_HEX = re.compile(rf"([0-9a-fA-F]{{4,8}})(?:: ({_BYTES})|  +({_BYTES}(?: {_BYTES}(?= *\||  |$))?))(?: |\||$)")
"""A line of xxd, of hexdump -C, or of Wireshark: an offset, and bytes up to two blanks or a bar."""
HEX = "hex"
"""In the place of paths: the input is a hex dump; where its offset is 0, a value begins."""


TEXT = "text"
"""In the place of paths: the first JSON object with a name in each line, between other words."""


def documents_in(lines: Iterable[str]) -> Iterator[Any]:
    """JSON documents, one a line or one after the other over several lines."""
    held = ""
    for line in lines:
        try:
            yield from [json.loads(line)] if line.strip() else []
        except ValueError:  # a document of several lines
            held = line + "".join(lines)
    decoder, at = json.JSONDecoder(strict=False), 0
    while (rest := re.compile(r"\S").search(held, at)) is not None:
        found, at = decoder.raw_decode(held, rest.start())
        yield found


def at_path(found: Any, path: str) -> list[Any]:
    """What is at a path; null where nothing is.

    Examples
    --------
    >>> at_path({"a": [{"b": 1}, {}]}, '."a"[]."b"')
    [1, None]
    """
    some = [found]
    for name, index in _STEP.findall(path):
        if name:
            some = [one.get(json.loads(name)) if isinstance(one, dict) else None for one in some]
        elif index:
            some = [one[int(index)] if isinstance(one, list) and int(index) < len(one) else None for one in some]
        else:
            some = [inner for one in some for inner in _each(one)]
    return some


def _each(found: Any) -> Iterable[Any]:
    return found.values() if isinstance(found, dict) else found if isinstance(found, list) else ()


def text_of(found: Any) -> str:
    """A value as its own text: JSON behind other words, or in base64, is taken out."""
    if not isinstance(found, str):
        return json.dumps(found, ensure_ascii=False, separators=(",", ":"))
    with suppress(BadBase64, ValueError):
        if (inside := b64decode(found, validate=True).decode()).startswith("{"):
            return inside
    return found[max(found.find('{"'), 0) :] if not found.startswith(("{", "[")) else found


def taken(found: Any, paths: Sequence[str]) -> Iterator[str]:
    """The lines for one document: what several paths give belongs together, and what one gives alone to all."""
    named = [re.fullmatch(r"(?:(\w+)=)?(.*)", path, re.DOTALL) for path in paths]
    some = [(of[1], at_path(found, of[2])) for of in named if of is not None]
    n = max((len(values) for _, values in some), default=0)
    columns = (values if len(values) == n else repeat(values[0] if values else None, n) for _, values in some)
    for row in zip(*columns, strict=False):
        if len(some) == 1 and some[0][0] is None:
            yield text_of(row[0])
            continue
        whole: dict[str, Any] = {}
        for (name, _), value in zip(some, row, strict=True):
            whole |= {name: value} if name else value if isinstance(value, dict) else {}
        yield json.dumps(whole, ensure_ascii=False, separators=(",", ":"))


def of_hex(lines: Iterable[str]) -> Iterator[str]:
    """Each value of a hex dump in base64, as an object."""
    value = b""
    for found in chain(filter(None, map(_HEX.match, lines)), [None]):
        if value and (found is None or int(found[1], 16) == 0):
            yield json.dumps({"value": b64encode(value).decode()})
            value = b""
        if found is not None:
            value += bytes.fromhex(found[2] or found[3])


def text_in(line: str) -> str:
    """The first JSON object of a line, as it is written; empty where it has none."""
    with suppress(ValueError):
        begin = line.index('{"')
        return line[begin : json.JSONDecoder().raw_decode(line, begin)[1]]
    return ""


if __name__ == "__main__":
    match sys.argv[1:]:
        case [only] if only == HEX:
            printed = of_hex(sys.stdin)
        case [only] if only == TEXT:
            printed = filter(None, map(text_in, sys.stdin))
        case paths:
            printed = (line for found in documents_in(sys.stdin) for line in taken(found, paths))
    sys.stdout.writelines(f"{line}\n" for line in printed)
