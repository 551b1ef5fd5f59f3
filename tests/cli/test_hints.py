"""A hint names a command that exists, with options that it takes: all sentences of the package are read for them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import click
import pytest
from conftest import ROOT

from ticdc_lab.cli import main

OURS = re.compile(r"(?<!the )\bticdc-lab(?: --?[\w-]+)*((?: [a-z][a-z-]*){1,2})((?:(?![.;`\n]|\. |\)\s).|\.(?! |$))*)")
SCRIPT = re.compile(r"\./lab ([a-z][a-z-]*)((?: --[a-z-]+| [a-z]+=)*)")
USAGE = (ROOT / "lab").read_text(encoding="utf-8").split('"""')[1]
ANY = "\0"
"""Represents what is put into a sentence when it is reported."""


class Said(NamedTuple):
    """What a module has for the tests, which parse it once: all of the package takes two CPU seconds."""

    texts: list[tuple[int, str]]
    unquoted: list[tuple[int, str]]
    hints: list[tuple[str, ast.expr]]


@cache
def said_in(path: Path) -> Said:
    """Read a module."""
    nodes = [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    of_hints = (k.value for k in nodes if isinstance(k, ast.keyword) and k.arg == "hint")
    hints = [(f"{path.relative_to(ROOT)}:{value.lineno}", value) for value in of_hints]
    return Said([*texts(nodes)], [*unquoted(nodes)], hints)


def texts(nodes: Sequence[ast.AST]) -> Iterator[tuple[int, str]]:
    """Texts of a module that may name a command, with their lines; parts that are put in are :data:`ANY`."""
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            yield node.lineno, "".join(str(v.value) if isinstance(v, ast.Constant) else ANY for v in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def wrong(text: str) -> Iterator[str]:
    """Commands and options that a text names and that are none."""
    for words, rest in OURS.findall(text):
        names, command, context = words.split(), click.Command("ticdc-lab"), click.Context(main)
        of: click.Command = main
        for n, name in enumerate(names):
            if not isinstance(of, click.Group):
                break
            found = of.get_command(context, name)
            if found is None and n:  # `watch SOURCE` is `watch run SOURCE`, and a word may follow a command
                found = of.get_command(context, "run")
            if found is None:
                yield f"ticdc-lab {' '.join(names[: n + 1])}"
                return
            of, context = found, click.Context(found)
        if isinstance(of, click.Group) and (run := of.get_command(context, "run")) is not None:
            of = run
        command = of
        given = re.findall(r"(?<![\w-])--[a-z][a-z-]*", rest)
        of_all = [p for p in command.params if isinstance(p, click.Option) and p.required]
        missing = [p.opts[0] for p in of_all if given and not {*p.opts, *p.secondary_opts} & {*given}]
        yield from (f"ticdc-lab{words} without {o}" for o in missing)
        takes = {o for p in command.params for o in (*p.opts, *p.secondary_opts)} | {"--help"}
        yield from (f"ticdc-lab{words} {o}" for o in given if o not in takes)
    for name, options in SCRIPT.findall(text):
        line = re.findall(rf"^\./lab {name}\b.*", USAGE, re.MULTILINE)
        if not line:
            yield f"./lab {name}"
        yield from (f"./lab {name} {o}" for o in options.split() if line and o not in " ".join(line))


MODULES = sorted((ROOT / "ticdc_lab").rglob("*.py"))


def test_every_command_that_the_package_names_exists() -> None:
    """In hints, messages, help and docstrings."""
    said = [(f"{path.relative_to(ROOT)}:{n}", text) for path in MODULES for n, text in said_in(path).texts]
    found = [f"{place}: {one}" for place, text in said for one in wrong(text)]
    assert sum(bool(OURS.search(text)) for _, text in said) > 80
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("Run: ticdc-lab audti x", ["ticdc-lab audti"]),
        ("Run: ticdc-lab audit x --fast", ["ticdc-lab audit x --fast"]),
        ("Run: ticdc-lab watch findings --state x --json; or --nothing", []),
        ("Run: ticdc-lab watch x --state y --until 5", ["ticdc-lab watch x --until"]),
        ("Run: ticdc-lab pd explian --from x", ["ticdc-lab pd explian"]),
        ("the ticdc-lab version that wrote it", []),
        ("Run: ticdc-lab produce x --to avro --partitions 3 --out y", ["ticdc-lab produce x without --strategy"]),
        ("Run: ./lab setup spark=4", ["./lab setup spark="]),
        ("Run: ./lab stup", ["./lab stup"]),
        ("Run: ./lab setup --all", ["./lab setup --all"]),
    ],
)
def test_one_that_does_not_is_found(text: str, named: list[str]) -> None:
    """Misspelt, of another command, or of the script."""
    assert list(wrong(text)) == named


PASTED = re.compile(r"(?:^|[\s`(:;])(?:ticdc-lab|ls|df) (?:(?![;`\n]|\. ).)*$")
"""The beginning of a command into which something is put."""

AS_IT_IS = {
    "to", "n", "best", "after", "speed", "2 * n", "before + 2", "2 * before + 4", "to or MOST", "check_partitions(to)",
    "f.number", "found.flags", "read.model.name", "told.protocol", "how", "kind", "table", "changefeed", "shown",
    "first", "second", "text", "given", "read", "self.protocol",
}  # fmt: skip
"""What is put into commands as it is: numbers, words of ours, options, and what was quoted before."""


def unquoted(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Lines of code that put into a command, as it is, what a shell may read otherwise."""
    for node in nodes:
        said = ""
        for part in node.values if isinstance(node, ast.JoinedStr) else ():
            put_in = ast.unparse(part.value) if isinstance(part, ast.FormattedValue) else ""
            if put_in and PASTED.search(said) and "quote(" not in put_in and put_in not in AS_IT_IS:
                yield part.lineno, put_in
            said += ANY if put_in else str(getattr(part, "value", ""))


def test_what_is_put_into_a_command_is_quoted() -> None:
    """A path with a blank, or a name with a bracket, is one word of a shell's."""
    assert [(path.name, *one) for path in MODULES for one in said_in(path).unquoted] == []
    planted = 'hint = f"Run: ticdc-lab audit {source} --after {to}; it is {long}"; other = f"ls -l {quote(source)}"'
    assert list(unquoted(ast.walk(ast.parse(planted)))) == [(1, "source")]


def test_a_hint_is_no_question() -> None:
    """It is a command, or names what to give, set or check."""
    hints = [(place, text) for path in MODULES for place, value in said_in(path).hints for text in _parts(value)]
    assert len(hints) > 500
    assert [hint for hint in hints if re.search(r"\w\?(?: |$)", hint[1]) and "Did you mean" not in hint[1]] == []


NAMED = re.compile(
    rf"{ANY}|`|--[a-z]|\./lab |\b(?:ticdc-lab|pd-ctl|etcdctl|dmesg|pip|df|ls|rm|mkdir|chmod)\b|[A-Z]{{4,}}|:/|://"
    r"|\.(?:yaml|toml|jsonl?|parquet|zip|ipynb|html|py|gz)\b|\w\(|\w=|[a-z]\.[a-z]"
)
"""A command, an option, a setting, a name of code, a place or a file; or what is put in, which names one."""


def test_a_hint_names_what_to_run_or_set() -> None:
    """A reader who has the sentence alone knows what to type, or which setting, option or file to change."""
    hints = ((place, _whole(value)) for path in MODULES for place, value in said_in(path).hints)
    said = [(place, text) for place, text in hints if text]
    assert len(said) > 400
    assert [one for one in said if not NAMED.search(one[1])] == []
    assert not NAMED.search("Name another place.") and NAMED.search("Name another place with --out.")


def _whole(value: ast.expr) -> str:
    """A hint as one text; parts that are put in are :data:`ANY`."""
    match value:
        case ast.Constant():
            return str(value.value)
        case ast.JoinedStr():
            return "".join(_whole(v) for v in value.values)
        case ast.BinOp():
            return _whole(value.left) + _whole(value.right)
    return ANY


def _parts(value: ast.expr) -> list[str]:
    return [n.value for n in ast.walk(value) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
