"""What the documentation promises works: examples, links, commands, formulae; and it builds without a warning."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import click
import pytest
import yaml
from pyspark.sql import SparkSession

import ticdc_lab
from ticdc_lab.cli import main

ROOT = Path(__file__).resolve().parent.parent
PAGES = {p.relative_to(ROOT).as_posix(): p.read_text(encoding="utf-8") for p in sorted((ROOT / "docs").glob("*.md"))}
_BESIDE = ("README.md", "CONTRIBUTING.md", "tests/README.md")
TEXTS = PAGES | {name: (ROOT / name).read_text(encoding="utf-8") for name in _BESIDE}
EXAMPLE = re.compile(r"```python\n(?P<code>.*?)```(?:\n\n```text\n(?P<shown>.*?)```)?", re.DOTALL)
EXAMPLES = [name for name, text in PAGES.items() if EXAMPLE.search(text)]
CAPABILITIES = [name for name, text in PAGES.items() if "**The question" in text]
OUTSIDE = re.compile(r"^(?:https?|mailto):")


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_of_a_page_run(
    name: str,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """A page's Python blocks run one after the other, on the suite's session; a text block behind one is its output."""
    page = PAGES[name]
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(ticdc_lab, "session", lambda *_: spark)  # a page that begins none finds this one active
    known: dict[str, object] = {}
    for example in EXAMPLE.finditer(page):
        capfd.readouterr()
        exec(compile(example["code"].replace("/tmp/", f"{tmp_path}/"), name, "exec"), known)
        printed = capfd.readouterr().out
        assert example["shown"] is None or printed.strip() == example["shown"].strip()


def test_the_first_example_of_a_page_needs_no_java() -> None:
    """It runs on the light set, as a newcomer has it."""
    firsts = {name: EXAMPLE.search(PAGES[name]) for name in EXAMPLES}
    assert not [
        name for name, first in firsts.items() if first and re.search(r"(?m)^[^#\n]*session\([\"']spark", first["code"])
    ]


@pytest.mark.parametrize("name", CAPABILITIES)
def test_a_capability_says_what_it_must(name: str) -> None:
    """Question, definitions with formulae, what is not proved, sources, and an example that runs."""
    page = PAGES[name]
    if name == "docs/workbench.md":
        return
    assert page.count("## Sources") == 1 and page.count("## What is") >= 1, name
    assert name in EXAMPLES
    assert "$" in page


def test_every_link_leads_somewhere() -> None:
    """Links between pages and to files of the repository; what is generated counts by its generator."""
    made = {"generated/cli.md", "generated/columns.md", "generated/events.md"}
    broken = [
        f"{name}: {target}"
        for name, text in TEXTS.items()
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[\w-]+)?\)", text)
        if not OUTSIDE.match(target) and target not in made and not (ROOT / name).parent.joinpath(target).exists()
    ]
    assert broken == []


def test_every_file_named_exists() -> None:
    """Every path of the repository that a page names in code is there, in CONTRIBUTING also the end of one."""
    named = {
        (name, path)
        for name, text in TEXTS.items()
        for path in re.findall(
            r"`((?:notebooks|data|ticdc_lab|tests|benchmarks|docs|simulate|codecs)/[\w./-]+\w)`", text
        )
    }
    places = (ROOT, ROOT / "ticdc_lab")
    assert len(named) >= 20
    assert sorted(n for n in named if not any((place / n[1]).exists() for place in places)) == []
    rooms = ("ticdc_lab", "tests", "benchmarks", "docs")
    files = [f"/{p.relative_to(ROOT).as_posix()}" for room in rooms for p in (ROOT / room).rglob("*.py")]
    short = {*re.findall(r"`([\w/]+\.py)\b", TEXTS["CONTRIBUTING.md"])}
    assert len(short) >= 40
    assert sorted(n for n in short if not any(f.endswith(f"/{n}") for f in files)) == []


def test_every_module_and_name_exists() -> None:
    """``ticdc_lab.a.b`` in a page is a module, or something in one."""
    named = {n for text in TEXTS.values() for n in re.findall(r"`(ticdc_lab(?:\.\w+)+)", text)}
    assert len(named) >= 15
    assert sorted(n for n in named if not _found(n)) == []


def test_every_command_shown_exists() -> None:
    """Each ``ticdc-lab COMMAND`` of a page is a command with the options that are shown."""
    shown = [
        c for text in TEXTS.values() for c in re.findall(r"^ticdc-lab ([\w-]+) +(.*?)(?:#.*)?$", text, re.MULTILINE)
    ]
    assert len(shown) >= 44
    assert {name for name, _ in shown} == set(main.commands)
    for name, rest in shown:
        command = main.commands[name]
        if isinstance(command, click.Group):
            word = rest.split()[0]  # `watch SOURCE` is `watch run SOURCE`
            command = command.commands["run" if name == "watch" and word not in command.commands else word]
        known = {o for p in command.params for o in p.opts}
        assert set(re.findall(r"--[a-z-]+", rest)) <= known, f"{name} {rest}"


def test_every_option_named_in_words_exists() -> None:
    """``--option`` in a sentence is an option of some command, of the set-up, or of a tool that is named beside it."""
    options = {o for c in _commands(main) for p in c.params for o in p.opts} | {"--execute", "--help"}
    prose = "\n".join(re.sub(r"```.*?```", "", text, flags=re.DOTALL) for text in TEXTS.values())
    assert sorted(set(re.findall(r"`(--[a-z][a-z-]+)", prose)) - options) == []


def test_pages_fetch_nothing() -> None:
    """No page draws from the network: pictures are files of the repository."""
    drawn = [t for text in TEXTS.values() for t in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text)]
    assert [t for t in drawn if OUTSIDE.match(t)] == []


def test_the_reference_has_every_public_name(references: ModuleType, tmp_path: Path) -> None:
    """Names of the package, columns of the frames and commands are in the pages that are made from them."""
    references.write(tmp_path)
    names = (tmp_path / "api-logs.rst").read_text()
    assert [n for n in ticdc_lab.__all__ if f"::{n}\n" not in names and f"``ticdc_lab.{n}``" not in names] == []
    assert "| `commit_ts` | bigint |" in (tmp_path / "columns.md").read_text()
    commands = (tmp_path / "cli.md").read_text()
    assert all(f"\n## {name}\n" in commands for name in ("ticdc-lab audit", "ticdc-lab pd explain"))


def test_each_question_has_a_page_of_its_docstring_and_its_command(references: ModuleType, tmp_path: Path) -> None:
    """A method that gives an answer is a page; where a command asks the same, its help is there."""
    references.write(tmp_path)
    asked = {"contents", "load", "watermarks", "why", "transactions", "audit", "what_if", "advise", "expand"}
    assert asked | {"consumers", "compare", "fidelity", "table", "row", "messages"} <= set(references.questions())
    pages = {p.name for p in tmp_path.glob("question-*")}
    assert pages == {f"question-{name.replace('_', '-')}.rst" for name in references.questions()}
    audit = (tmp_path / "question-audit.rst").read_text()
    assert audit.startswith("Did it keep TiCDC's promises") and "ticdc_lab.log.Log.audit" in audit
    assert "Usage: ticdc-lab audit [OPTIONS] SOURCE" in audit
    assert "Usage: ticdc-lab dispatch" in (tmp_path / "question-dispatch.rst").read_text()
    assert "Usage" not in (tmp_path / "question-row.rst").read_text()


def test_formulae_need_no_script(references: ModuleType) -> None:
    """Every formula of every page is one that becomes MathML."""
    from docutils.utils.math.latex2mathml import tex2mathml

    formulae = [
        f for page in PAGES.values() for f in re.findall(r"\$\$(.+?)\$\$|(?<!\$)\$([^$\n]+?)\$(?!\$)", page, re.DOTALL)
    ]
    assert len(formulae) >= 50
    for whole, inline in formulae:
        assert "<math" in tex2mathml((whole or inline).strip(), as_block=bool(whole))


def test_the_scenario_shown_is_the_file() -> None:
    """It is run by the tests of the pipeline's scenarios; comments may differ."""
    (shown,) = re.findall(r"```yaml\n(.*?)```", PAGES["docs/pipeline.md"], re.DOTALL)
    kept = yaml.safe_load((ROOT / "data/scenarios/pipeline/lock-behind-a-crash.yaml").read_text(encoding="utf-8"))
    assert kept == yaml.safe_load(shown)


@pytest.mark.soak
def test_the_documentation_builds_offline(tmp_path: Path) -> None:
    """All pages, no warning, and no page that fetches anything from the network."""
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "-d", tmp_path / "trees"]
    subprocess.run([*command, ROOT / "docs", tmp_path / "html"], check=True, env=os.environ | {"PYTHONPATH": str(ROOT)})
    pages = sorted((tmp_path / "html").rglob("*.html"))
    assert len(pages) > 30
    fetched = re.compile(r"<(?:script|img|iframe)[^>]+src=\"https?:|<link[^>]+rel=\"stylesheet\"[^>]+href=\"https?:")
    assert [p.name for p in pages if fetched.search(p.read_text(encoding="utf-8"))] == []


@pytest.fixture
def references() -> ModuleType:
    """The extension that makes the references."""
    spec = importlib.util.spec_from_file_location("references", ROOT / "docs/extensions/references.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _commands(command: click.Command) -> list[click.Command]:
    children = command.commands.values() if isinstance(command, click.Group) else []
    return [command, *(c for child in children for c in _commands(child))]


def _found(name: str) -> bool:
    """Whether a dotted name is a module, or leads to something in one."""
    parts = name.split(".")
    for n in range(len(parts), 0, -1):
        try:
            value: object = importlib.import_module(".".join(parts[:n]))
        except ImportError:
            continue
        for part in parts[n:]:
            if not hasattr(value, part):
                break
            value = getattr(value, part)
        else:
            return True
    return False


def test_every_benchmark_has_a_date_and_a_command_that_repeats_it() -> None:
    """Each table, in the words above it or in columns of its own; a section begins with its question."""
    page, wrong = PAGES["docs/benchmarks.md"], []
    for section in re.split(r"(?m)^##+ ", page)[1:]:
        above = ""
        for block in section.split("\n\n")[1:]:
            if not block.startswith("|"):
                above = block
                continue
            dated = re.search(r"\d{4}-\d\d-\d\d", above + block)
            repeated = "Repeat: " in above or "repeat |" in block.splitlines()[0]
            if not (dated and repeated and "?" in above):
                wrong.append(block.splitlines()[0])
            above = ""
    assert not wrong and page.count("|---|") > 15
