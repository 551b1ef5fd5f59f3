"""The examples of the package's docstrings run, and show what they show."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ticdc_lab import ChangeLog, load

ROOT = Path(__file__).resolve().parent.parent
SAMPLE = ROOT / "data/messages_canal-json-tidb_small.jsonl.gz"


def examples() -> Iterator[tuple[str, str]]:
    """Module and name of every function and class whose docstring has an example, found in the text."""
    for path in sorted((ROOT / "ticdc_lab").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if ">>> " not in text:
            continue
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and ">>> " in (ast.get_docstring(node) or ""):
                yield module, node.name


EXAMPLES = list(examples())


@pytest.fixture(scope="module")
def log(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> ChangeLog:
    """What examples call ``log``: the small sample, decoded once."""
    return load(spark, str(SAMPLE)).materialise(str(tmp_path_factory.mktemp("examples") / "log"))


@pytest.mark.parametrize(("module", "name"), EXAMPLES, ids=[f"{m}.{n}" for m, n in EXAMPLES])
def test_an_example_shows_what_comes(
    module: str, name: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an example ``spark`` is a session and ``log`` the small sample; it runs in the repository's folder."""
    monkeypatch.chdir(ROOT)
    home = importlib.import_module(module)
    doc = inspect.getdoc(getattr(home, name)) or ""
    needed = {
        n.id
        for e in doctest.DocTestParser().get_examples(doc)
        for n in ast.walk(ast.parse(e.source))
        if isinstance(n, ast.Name)
    }
    known: dict[str, Any] = dict(vars(home)) | {f: request.getfixturevalue(f) for f in ("spark", "log") if f in needed}
    test = doctest.DocTestParser().get_doctest(doc, known, f"{module}.{name}", inspect.getsourcefile(home), 0)
    said: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.IGNORE_EXCEPTION_DETAIL | doctest.NORMALIZE_WHITESPACE).run(
        test, out=said.append
    )
    assert test.examples and said == [], "".join(said)


def test_the_public_functions_have_examples() -> None:
    """What a newcomer meets first shows how it is called."""
    assert len(EXAMPLES) >= 14


def test_a_wrong_example_is_seen() -> None:
    """The way of running them fails where an example shows something else."""
    test = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "wrong", None, 0)
    said: list[str] = []
    doctest.DocTestRunner().run(test, out=said.append)
    assert said
