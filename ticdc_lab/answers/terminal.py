"""Rows for a terminal: columns that fit it, and text that stays text."""

from __future__ import annotations

import io
import re
import sys
import textwrap
from collections.abc import Iterable, Sequence

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
"""What moves a cursor or changes colours."""

_WHOLE = 20
"""Letters that are never broken: a timestamp can be copied."""

_WIDE = 100_000
"""Columns of what is no terminal: a file or a pipe gets every line whole."""


_READABLE = 100
"""Columns of text that people read in a terminal."""


def wrapped(text: str, *, indent: int = 0, label: str = "") -> str:
    """Text in lines of a hundred columns; ``label`` comes before the first, and the others begin below its end.

    A word is never broken, so that a command and a path can be copied.

    Examples
    --------
    >>> print(wrapped("bytes, shown", indent=4, label="known from  "))
        known from  bytes, shown
    """
    first = " " * indent + label
    shown = _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)
    return textwrap.fill(
        shown, _READABLE, initial_indent=first, subsequent_indent=" " * (len(first) if label else indent + 4),
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def aligned(names: Sequence[str], rows: Iterable[Sequence[str]], *, width: int | None = None) -> str:
    """Lay rows out in columns.

    ``names``, ``rows``: of the columns; texts, with any content: nothing in them is markup. ``width``: of the
    terminal: cells of more than twenty letters are broken where it ends. By default standard output's, without
    bounds where it is none.

    Examples
    --------
    >>> print(aligned(["table", "rows"], [["shop.orders", "357"], ["[red]", "1"]]))
    table        rows
    shop.orders  357
    [red]        1
    """
    from rich.cells import cell_len
    from rich.console import Console  # here: not every command prints a table
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    shown = [[_CONTROL.sub("\N{REPLACEMENT CHARACTER}", cell) for cell in row] for row in rows]
    least = [min(_WHOLE, max(map(cell_len, cells))) for cells in zip(names, *shown, strict=True)]
    for name, kept in zip(names, least, strict=True):
        table.add_column(Text(name), overflow="fold", min_width=kept)
    for row in shown:
        table.add_row(*map(Text, row))
    if width is None:
        width = Console().width if sys.stdout is not None and sys.stdout.isatty() else _WIDE
    width = max(width, sum(least) + 2 * len(least))  # what cannot fit, the terminal breaks
    text = io.StringIO()
    Console(file=text, width=width, color_system=None, legacy_windows=False).print(table)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())
