"""The spelling of numbers, shares and lists in sentences."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Sequence


def count(n: int, noun: str, plural: str | None = None) -> str:
    """``1 row``, ``1,234 rows``."""
    return f"{n:,} {noun if n == 1 else plural or noun + 's'}"


def are(n: int) -> str:
    """``is`` of one, ``are`` of others: for subjects that :func:`count` does not end."""
    return "is" if n == 1 else "are"


def some_of(names: Sequence[str], *, most: int = 8, between: str = ", ") -> str:
    """Some names, and how many more there are."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return between.join(names[:most]) + more


def percent(part: float, whole: float = 1) -> str:
    """``82 %``; never 0 % or 100 % where it is not exactly that."""
    if whole == 0 or part == 0:
        return "0 %"
    share = 100 * part / whole
    if share < 1 or 99 < share < 100:
        return "under 1 %" if share < 1 else "over 99 %"
    return f"{share:.0f} %"


def rounded(value: float, digits: int = 3) -> str:
    """A number with so many digits as people read it: no exponent, and no digit before the point is lost.

    Examples
    --------
    >>> rounded(7184.4), rounded(0.30000001), rounded(0.0000123), rounded(-2, 4), rounded(1234567.8, 6)
    ('7,184', '0.3', '0.0000123', '-2', '1,234,568')
    """
    if value == 0 or not math.isfinite(value):
        return f"{value:,.0f}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    shown = f"{value:,.{decimals}f}"
    return shown.rstrip("0").rstrip(".") if decimals else shown


def lane_of(of_storage: bool) -> str:
    """What messages lie in: a partition of a topic, or a stream of a storage sink's files."""
    return "stream" if of_storage else "partition"


def in_lanes(text: str, lane: str) -> str:
    """A sentence about partitions in the words of :func:`lane_of`; names and options that contain the word stay."""
    return text if lane == "partition" else _PARTITION.sub(lambda m: ("S" if m[1] == "P" else "s") + "tream", text)


_PARTITION = re.compile(r"(?<![\w`-])([Pp])artition(?=s?(?![\w`-]))")


def first_line(said: object) -> str:
    """The first line of what an error or a program printed; of an error without words its class."""
    lines = str(said).strip().splitlines()
    return lines[0] if lines else "nothing" if isinstance(said, str) else type(said).__name__


def shortened(text: str, most: int) -> str:
    """At most so many characters: a name is cut anywhere, a sentence behind a word that ends in its last quarter.

    >>> shortened(f"{'x' * 60} has no target", 70), shortened("shop.a long name", 8)
    ('xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx has no…', 'shop.a…')
    """
    if len(text) <= most:
        return text
    head, _, part = text[:most].rpartition(" ")
    is_sentence = most > 60 and part and len(head) >= most * 3 // 4
    return (head if is_sentence else text[: most - 1]).rstrip() + "…"


def visible(text: str, *, kept: str = "") -> str:
    r"""Text on a page or in a terminal: what cannot be seen, as a NUL byte, is an escape (``\x00``).

    A backslash of the text stays one, unless it could be read as the begin of such an escape: then it is two.
    ``kept``: characters that stay. :func:`unescaped` gives the text back.
    """
    if text.isprintable() and "\\" not in text:
        return text
    hidden = [c for c in dict.fromkeys(text) if not c.isprintable() and c not in kept]
    marked = _ESCAPE.sub(lambda m: 2 * m[1] + m[2] if _is_hidden(m[2]) and m[2] not in kept else m[0], text)
    return marked.translate({ord(c): _escape(ord(c)) for c in hidden})


def in_html(text: str, *, dates_whole: bool = False) -> str:
    """A sentence as HTML: commands, and text in back-ticks, become code; SQL keeps its back-ticks.

    ``dates_whole``: no line ends within a date; in a page of ours its script sees to that.

    Examples
    --------
    >>> in_html("the default of `--bound` is a < b")
    'the default of <code>--bound</code> is a &lt; b'
    >>> in_html("To list them: ticdc-lab settings 'my log.gz' --json. Then compare.")
    'To list them: <code>ticdc-lab settings &#x27;my log.gz&#x27; --json</code>. Then compare.'
    >>> in_html("at 2026-11-20 21:56", dates_whole=True)
    'at <span style="white-space:nowrap">2026-11-20</span> 21:56'
    """
    of_sql, code, said, end = _OF_SQL.search(text), r"<code>\1</code>", "", 0
    for m in [*COMMAND.finditer(text), None]:
        words = html.escape(text[end : m.start() if m else None])
        said += words if of_sql else _IN_TICKS.sub(code, words)
        said += f"<code>{html.escape(m[0])}</code>" if m else ""
        end = m.end() if m else end
    return _DATES.sub(r'<span style="white-space:nowrap">\g<0></span>', said) if dates_whole else said


def quoted(text: str) -> str:
    """The same where no code can be drawn: what is in back-ticks stands between quotation marks.

    Examples
    --------
    >>> quoted("in the band `later`"), quoted("DROP TABLE `a`.`b`")
    ('in the band “later”', 'DROP TABLE `a`.`b`')
    """
    return text if _OF_SQL.search(text) else _IN_TICKS.sub(r"“\1”", text)


_ARGUMENT = r"(?:'[^'\n]*'|[^\s;`'])*(?:'[^'\n]*'|[^\s;`'.,:)])"
COMMAND = re.compile(
    r"(?<![\w`/.-])(?<!the )(?:\./lab|ticdc-lab|(?:python -m )?pip|kcat)"
    r"(?: (?:pd|simulate|ddl-service|watch) [a-z][a-z-]*| [a-z][a-z-]*| -[a-zA-Z]\b)"
    r"(?: [\w-]+(?= --|[.,;:)](?:\s|$)|$))?"
    rf"(?: (?:--(?:json|reasons|debug|help)\b|--?[a-z][\w-]*(?: (?!--){_ARGUMENT})?"
    rf"|(?![a-z]+[.,;:)]?(?:\s|$)){_ARGUMENT}))*"
)
"""A command in a sentence, up to its last argument: a plain word ends it, unless an option takes it."""
_DATES = re.compile(r"\b\d{4}-\d\d-\d\d\b")
_IN_TICKS, _OF_SQL = re.compile(r"(?<![\w`])`([^`\n]+)`(?![\w`])"), re.compile(r"`\.`|[A-Z]{2} `")


def unescaped(text: str) -> str:
    """The text that :func:`visible` shows so."""

    def whole(m: re.Match[str]) -> str:
        if not _is_hidden(m[2]) or len(m[2]) == 1:
            return m[0]
        return m[1][: len(m[1]) // 2] + (chr(int(m[2][1:], 16)) if len(m[1]) % 2 else m[2])

    return _ESCAPE.sub(whole, text)


_ESCAPE = re.compile(r"(\\+)(x[0-9a-f]{2}|u[0-9a-f]{4}|U00(?:0[0-9a-f]|10)[0-9a-f]{4}|[^\\]|\Z)", re.DOTALL)
"""Backslashes, and what follows them."""


def _is_hidden(behind: str) -> bool:
    """Whether it is a character that cannot be seen, or its escape without the backslash."""
    return not (chr(int(behind[1:], 16)) if len(behind) > 1 else behind).isprintable()


def _escape(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
