"""Words that must not return to texts for people: pages, notebooks, help, messages, docstrings and comments."""

from __future__ import annotations

import ast
import io
import json
import re
import tokenize
from collections.abc import Iterator, Mapping
from pathlib import Path

import click
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ticdc_lab.cli import main
from ticdc_lab.words import first_line, in_html, percent, unescaped, visible

ROOT = Path(__file__).resolve().parent.parent

PATTERNS = {
    r"\w\((?:s|es)\)": "a real plural: 1 message, 3 messages",
    r"\b(?:told|tells?)\b": "detect, show, report",
    r"\b(?:lacks?|lacked|lacking)\b": "is missing, has no",
    r"\b(?:mend(?:s|ed)?|bef[ae]lls?|heeds?)\b": "fix, happen to, respect",
    r"\bnobody\b": "no one-word subject: name what does not happen",
    r"\bbut for\b": "except for",
    r"\bthat of\b": "repeat the noun",
    r"\bof which\b(?! (?:cluster|upstream|table)\b)": "a sentence of its own",
    r"\b(?:go(?:es)?|went) on\b": "continue, resume",
    r"\botherwise than\b": "differently from",
    r"\bmade up\b": "invented, guessed",
    r"\bsign of life\b": "heartbeat",
    r"\bevery now and then\b": "periodically",
    r"\bstood\b": "stalled, stopped",
    r"\bstands? (?:for|still|in|at|behind|there|below|before|beside|twice)\b": "is, replaces, stalls",
    r"\b(?:scenario|settings?) files? says?\b": "defines, sets",
    r"\bcame to light\b|\bfor who\b|\bbe there twice\b|\bexcuses? \w": "found; Writing X; occurs twice; explain",
    r"\bmust not know\b": "does not depend on",
    r"\b(?:this|that) is said\b": "reported",
    r"\b(?:logs?|files?|tables?|messages?|topics?) holds?\b(?! (?:back|the|its|up))": "contains, has",
    r"\bholds? (?:no (?:file|message|row|value)s?|more|those|topics|whole|few|values|a row)\b": "contains, has, fits",
    r"\bthose of\b": "repeat the noun",
    r"\bsa(?:y|ys|id) (?:so|nothing|it|how|what|which|when|where|why|no)\b": "show, report, define",
    r"\b(?:answers?|limits?|pages?|pictures?|titles?|notes?|hints?|errors?|brokers?|keys?|rules?) sa(?:y|ys|id)\b": (
        "show, report, name"
    ),
    r"\b(?:anew|for ever|gone on with|to be seen)\b": "again; without end; continued; visible",
    r"\b(?:some|any)body\b": "name who does it",
    r"\b(?:holds that|is held as|it is so|must be so)\b": "checks that; is true; must be true",
    r"\bwhatever (?:its|it|their|the (?:name|order|dispatcher|size))\b": "in any, by any, with any",
}
"""What must not return, and what to write."""

OF_CODE = {
    r"\bsa(?:y|ys|id)\b": "show, report, contain, define; the field's name with a colon",
    r"\b(?:whoever|whatever|however many)\b": "the subject; any",
}
"""What also must not return to docstrings and comments."""

EXCEPTIONS = frozenset({"Used Space is That of Peers"})
"""Names that are written as they are: an invariant of PD's model."""

CODE = re.compile(r"\bfunction\b|^\s*(?:create|insert|select|update|delete) ")
"""Texts that are JavaScript or SQL."""

QUOTED = re.compile(r"``[^`]*``|`[^`]*`|^ *(?:>>> .*|\w+(?:, \w+)*)$", re.MULTILINE)
"""Code in a docstring: in backticks, an example, the names of parameters."""


def unwelcome(text: str, patterns: Mapping[str, str] = PATTERNS) -> list[str]:
    """Every match of a pattern, also across line ends, with the words around it and what to write."""
    text = " ".join(text.split())
    for name in EXCEPTIONS:
        text = text.replace(name, "")
    return [
        f"..{' '.join(text[max(0, m.start() - 40) : m.end() + 40].split())}.. -> {better}"
        for pattern, better in patterns.items()
        for m in re.finditer(pattern, text, re.IGNORECASE)
    ]


def test_each_pattern_finds_its_words() -> None:
    """Each on a planted sentence, upper case too; the better words pass."""
    planted = (
        "3 message(s) and 2 stretch(es); the protocol is told from the bytes; The log cannot tell; it Lacks offsets; "
        "was mended; what befell a node; nobody looks; whole but for 3 offsets; the checksum is that of NULL; three, "
        "of which two moved; the next run goes on; answers otherwise than Spark; never made up; no sign of life; "
        "every now and then; a watermark stood; the checkpoint stands still; a scenario file says the cluster; "
        "it came to light; a kernel that must not know; this is said; a region holds a row; the log holds 3 rows, "
        "though one partition holds it back; offsets are those of the broker; the owner says why; the answer says 3; "
        "made anew; unless somebody stops it; a test holds that it passes; refused, whatever its name"
    )
    found = [pattern for pattern in PATTERNS if re.search(pattern, planted, re.IGNORECASE)]
    assert found == list(PATTERNS) and len(unwelcome(planted)) == len(PATTERNS) + 3
    assert unwelcome("1 message is missing; the protocol is detected; the next run resumes; it stalled") == []


_NAMED = (ROOT / name for name in ("README.md", "CONTRIBUTING.md", "tests/README.md"))
PAGES = [*_NAMED, *ROOT.glob("docs/*.md"), *ROOT.glob("data/**/README.md")]


def test_pages_have_no_such_words() -> None:
    """README, CONTRIBUTING, each page of docs/, of data/ and of tests/, without code blocks."""
    texts = {p.relative_to(ROOT).as_posix(): p.read_text("utf-8") for p in PAGES}
    prose = {name: re.sub(r"```.*?```", "", text, flags=re.S) for name, text in texts.items()}
    assert len(prose) > 30
    assert {name: found for name, text in prose.items() if (found := unwelcome(text))} == {}


def test_notebooks_have_no_such_words() -> None:
    """Their prose; code is checked where its strings are drawn."""
    found = {}
    for path in sorted(ROOT.glob("notebooks/*.ipynb")):
        cells = json.loads(path.read_text("utf-8"))["cells"]
        words = unwelcome("\n\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown"))
        found |= {path.name: words} if words else {}
    assert found == {}


def test_help_has_no_such_words() -> None:
    """Of every command and option."""
    found = {name: words for name, text in _helps("ticdc-lab", main) if (words := unwelcome(text))}
    assert found == {}


ROOMS = sorted(f"ticdc_lab/{p.name}" for p in (ROOT / "ticdc_lab").iterdir() if p.suffix in ("", ".py"))


@pytest.mark.parametrize("room", [*ROOMS, "benchmarks", "docs"])
def test_code_has_no_such_words(room: str) -> None:
    """Its sentences (errors, hints, findings, titles), docstrings, from which pages are made, and comments."""
    place = ROOT / room
    found = {}
    for path in [place] if place.suffix else sorted(place.rglob("*.py")):
        source = path.read_text("utf-8")
        of_code = [*_docstrings(ast.parse(source)), *_comments(source)]
        words = [w for text in _sentences(ast.parse(source)) for w in unwelcome(text)]
        words += [w for text in of_code for w in unwelcome(text, PATTERNS | OF_CODE)]
        found |= {path.relative_to(ROOT).as_posix(): words} if words else {}
    assert found == {}


def test_tests_have_no_such_words() -> None:
    """Their docstrings and comments; this file plants some."""
    found = {}
    for path in sorted((ROOT / "tests").rglob("*.py")):
        source = path.read_text("utf-8")
        of_code = [*_docstrings(ast.parse(source)), *_comments(source)] if path != Path(__file__) else []
        words = [w for text in of_code for w in unwelcome(text, PATTERNS | OF_CODE)]
        found |= {path.relative_to(ROOT).as_posix(): words} if words else {}
    assert found == {}


def test_docstrings_and_comments_are_read() -> None:
    """Of classes, functions and values; code in them is left out, and a phrase may cross a line end."""
    source = '''
def f(told):
    """What nobody reads, and ``nobody``.

    told
        >>> f("nobody")
    """
    # the checksum is that
    # of NULL
X = 1
"""What X lacks and says; not what :attr:`lacks` is."""
'''
    texts = [*_docstrings(ast.parse(source)), *_comments(source)]
    found = [w.split("..")[1] for text in texts for w in unwelcome(text, PATTERNS | OF_CODE)]
    assert found == [
        *2 * ["What X lacks and says; not what :attr:`_` is"],
        "What nobody reads, and `_`. `_` `_`",
        "# the checksum is that of NULL",
    ]


def _helps(name: str, command: click.Command) -> Iterator[tuple[str, str]]:
    yield name, "\n\n".join([command.help or "", *(getattr(p, "help", None) or "" for p in command.params)])
    for child, below in (command.commands if isinstance(command, click.Group) else {}).items():
        yield from _helps(f"{name} {child}", below)


def _sentences(tree: ast.Module) -> Iterator[str]:
    """Texts with at least three words that are not statements of their own, as docstrings are."""
    alone = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
    for n in ast.walk(tree):
        is_text = isinstance(n, ast.Constant) and isinstance(n.value, str) and id(n) not in alone
        if is_text and n.value.count(" ") > 1 and not CODE.search(n.value):
            yield n.value


def _docstrings(tree: ast.Module) -> Iterator[str]:
    """Texts that are statements, without the code in them."""
    for n in ast.walk(tree):
        if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant) and isinstance(n.value.value, str):
            yield QUOTED.sub("`_`", n.value.value)


def _comments(source: str) -> Iterator[str]:
    """Each as a whole: lines one below the other are one text."""
    last, lines = 0, list[str]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            if token.start[0] != last + 1 and lines:
                yield QUOTED.sub("`_`", " ".join(lines))
                lines = []
            last = token.start[0]
            lines.append(token.string if not lines else token.string.lstrip("# "))
    if lines:
        yield QUOTED.sub("`_`", " ".join(lines))


def test_a_share_has_one_spelling() -> None:
    """``5 %``, by :func:`ticdc_lab.words.percent`: no other place formats one, and no page writes ``5%``."""
    of_modules = [
        f"{path.relative_to(ROOT)}:{n.lineno}"
        for path in sorted((ROOT / "ticdc_lab").rglob("*.py"))
        for n in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(n, ast.JoinedStr) and any(_formats_a_share(v) for v in n.values)
    ]
    code = re.compile(r"```.*?```|`[^`]*`", re.S)
    of_pages = [p.name for p in PAGES if re.search(r"\d%", code.sub("", p.read_text("utf-8")))]
    assert [*of_modules, *of_pages] == []
    shown = [percent(*of) for of in ((1, 4), (0, 4), (1, 1_000), (999, 1_000), (4, 4))]
    assert shown == ["25 %", "0 %", "under 1 %", "over 99 %", "100 %"]


def _formats_a_share(part: ast.expr) -> bool:
    return (
        isinstance(part, ast.FormattedValue)
        and isinstance(part.format_spec, ast.JoinedStr)
        and any(isinstance(v, ast.Constant) and str(v.value).endswith("%") for v in part.format_spec.values)
    )


@given(
    st.lists(st.sampled_from([*"\\\\x0u1n\n\x00\x01\u200b", "00", "U000e0001", "U00110000", "\U000e0001"])).map("".join)
)
@example("C:\\new\\x\\u4f60")
def test_an_escape_is_no_text_that_looks_like_one(text: str) -> None:
    """What is shown leads back to the text, so two texts never look alike; a backslash stays one where none could."""
    assert visible(text).isprintable() and unescaped(visible(text)) == text
    assert unescaped(visible(text, kept="\n")) == text and visible(text, kept="\n").count("\n") == text.count("\n")
    assert visible(r"C:\new") == r"C:\new" and visible("\x00") == r"\x00" and visible(r"\x00") == r"\\x00"


@pytest.mark.parametrize(("sentence", "commands"), [
    ("What it costs: ticdc-lab expand 'my log.gz' --after 8.", ["ticdc-lab expand 'my log.gz' --after 8"]),
    ("Next: ticdc-lab audit x.gz --messages-of 1. Then look.", ["ticdc-lab audit x.gz --messages-of 1"]),
    ("ticdc-lab audit a.gz or ticdc-lab audit b.gz", ["ticdc-lab audit a.gz", "ticdc-lab audit b.gz"]),
    ("gone (ticdc-lab survey kafka://h:1/t); then: ./lab setup --spark", ["ticdc-lab survey kafka://h:1/t",
                                                                        "./lab setup --spark"]),
    ("ticdc-lab settings dump --json shows how", ["ticdc-lab settings dump --json"]),
    ("use the ticdc-lab version that wrote it", []),
])  # fmt: skip
def test_a_command_in_a_sentence_is_code(sentence: str, commands: list[str]) -> None:
    """Up to its last argument, in every page and panel; the words around it are not."""
    assert re.findall("<code>(.*?)</code>", in_html(sentence).replace("&#x27;", "'")) == commands
    assert re.sub("<.*?>", "", in_html(sentence)).replace("&#x27;", "'") == sentence


def test_an_error_without_words_is_named_by_its_class() -> None:
    """No place takes the first of no lines: each first line comes from :func:`ticdc_lab.words.first_line`."""
    assert [first_line(x) for x in (OSError(), OSError("a\nb"), "", " \nx")] == ["OSError", "a", "nothing", "x"]
    bare = re.compile(r"str\([^\n]*\)\.splitlines\(\)\[0\]")
    assert [p.name for p in (ROOT / "ticdc_lab").rglob("*.py") if bare.search(p.read_text("utf-8"))] == []
