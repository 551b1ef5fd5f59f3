"""Text that a page, a forum or a tool wrote otherwise: escapes and quotes, and the command that undoes them."""

from __future__ import annotations

import html
import json
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import unquote


class Rewritten(NamedTuple):
    """How a text was written otherwise: what shows it, what undoes it, and the command that does so."""

    words: str
    mark: str
    undo: Callable[[str], str]
    command: str


_QUOTES = "[\u201c\u201d\u201e\u201f\u2033\uff02]"
_PYTHON = f"{shlex.quote(sys.executable)} -c "
_REWRITTEN: Sequence[Rewritten] = (
    Rewritten(
        "escapes of HTML", "&(?:quot|#34|#x22);", html.unescape,
        _PYTHON + "'import html,sys; print(html.unescape(sys.stdin.read()))' < {file}",
    ),
    Rewritten(
        "typographic quotes, as forums and editors put them", rf"(?m){_QUOTES}|^\{{.*\uff1a",
        lambda text: re.sub("\u2018([^\u2019\n]*)\u2019", r"'\1'", re.sub(_QUOTES, '"', text))
        .replace("\uff1a", ":").replace("\uff0c", ","),
        f"sed -E 's/{'|'.join(_QUOTES[1:-1])}/\"/g;s/\uff1a/:/g;s/\uff0c/,/g' {{file}} | "
        "sed -E \"s/\u2018([^\u2019]*)\u2019/'\\1'/g\"",
    ),
    Rewritten(
        "blanks of a page (U+00A0)", "\u00a0", lambda text: text.replace("\u00a0", " "),
        r"sed 's/\xc2\xa0/ /g' {file}",
    ),
    Rewritten(
        "backslashes before its quotes", r'(?m)^\{\\"', lambda text: re.sub("(?m)^(.+)$", r'"\1"', text),
        "sed 's/.*/\"&\"/' {file}",
    ),
    Rewritten(
        "JSON in a text of JSON", r'(?m)^"(?:\\")?\{',
        lambda text: "\n".join(json.loads(line) for line in text.split("\n") if line[-1:] == '"'), "jq -r . {file}",
    ),
    Rewritten(
        "escapes of URLs", "%7B%22", unquote,
        _PYTHON + "'import sys; from urllib.parse import unquote; print(unquote(sys.stdin.read()))' < {file}",
    ),
    Rewritten(
        "bytes as numbers, as Go prints them", r"(?m)^\[123 34 ",
        lambda text: "\n".join(bytes(map(int, of[1].split())).decode() for of in re.finditer(r"\[([\d ]+)\]\n", text)),
        _PYTHON + "'import sys; [sys.stdout.buffer.write(bytes(map(int,l.strip(\" []\\n\").split()))+b\"\\n\") "
        "for l in sys.stdin]' < {file}",
    ),
)  # fmt: skip


def undone(text: str) -> Iterator[tuple[Rewritten, str]]:
    """How a text may have been written otherwise, and what it was before, for each way that its marks show."""
    for of in _REWRITTEN:
        if re.search(of.mark, text):
            with suppress(ValueError):
                yield of, of.undo(text)
