"""Pages that are made of the package itself, so that they always agree with it: commands, columns, functions.

They are written into ``docs/generated/`` before each build.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import click
from pyspark.sql.types import ArrayType, StructField, StructType
from sphinx.application import Sphinx

from ticdc_lab.simulate.reading import yaml_name
from ticdc_lab.simulate.scenario import MODELS, model_named
from ticdc_lab.simulate.trace import SUBJECTS

API: dict[str, tuple[str, ...]] = {
    "Logs": (
        "ticdc_lab",
        "ticdc_lab.sources.load",
        "ticdc_lab.sources.change_log",
        "ticdc_lab.facts.limits",
        "ticdc_lab.sources.survey",
        "ticdc_lab.events.sample",
        "ticdc_lab.engine.sessions",
        "ticdc_lab.engine.classic",
        "ticdc_lab.sources.datasource",
        "ticdc_lab.errors",
        "ticdc_lab.events.tso",
    ),
    "Contracts": ("ticdc_lab.events.schema", "ticdc_lab.codecs.keys", "ticdc_lab.codecs", "ticdc_lab.encode"),
    "Watermarks": (
        "ticdc_lab.facts",
        *(f"ticdc_lab.facts.{part}" for part in ("watermarks", "laggards", "stalls")),
    ),
    "Transactions": ("ticdc_lab.transactions",),
    "Dispatch": (
        "ticdc_lab.dispatch",
        "ticdc_lab.dispatch.advise",
        "ticdc_lab.dispatch.comparison",
        "ticdc_lab.facts.catalog",
    ),
    "Partition count": ("ticdc_lab.repartition",),
    "Consumers": ("ticdc_lab.consumer", "ticdc_lab.consumer.consistency", "ticdc_lab.consumer.cases"),
    "Audit": ("ticdc_lab.audit", "ticdc_lab.faults", "ticdc_lab.tables.checksum_findings", "ticdc_lab.sources.fsck"),
    "Tables and topics": (
        "ticdc_lab.tables",
        "ticdc_lab.encode.produce",
        "ticdc_lab.lake.ingest",
        "ticdc_lab.tables.browse",
        "ticdc_lab.encode.fidelity",
    ),
    "Workloads": ("ticdc_lab.workload", "ticdc_lab.workload.settings"),
    "Simulators": (
        "ticdc_lab.machines.machine",
        "ticdc_lab.simulate.kernel",
        "ticdc_lab.simulate.network",
        "ticdc_lab.simulate.faults",
        "ticdc_lab.simulate.trace",
        "ticdc_lab.simulate.scenario",
        "ticdc_lab.simulate.explore",
        "ticdc_lab.simulate.sweep",
    ),
    "Table scheduler": (
        "ticdc_lab.simulate.scheduler.run",
        "ticdc_lab.simulate.scheduler.balance",
        "ticdc_lab.simulate.ledger",
        "ticdc_lab.simulate.what_holds",
    ),
    "Pipeline": (
        "ticdc_lab.simulate.pipeline.run",
        "ticdc_lab.simulate.pipeline.settings",
        "ticdc_lab.simulate.pipeline.looking",
        "ticdc_lab.simulate.pipeline.semantics",
    ),
    "PD": (
        "ticdc_lab.simulate.pd.world",
        "ticdc_lab.pd_core.pd_ctl_json",
        "ticdc_lab.pd_core.survey",
        "ticdc_lab.pd_core.forecast",
        "ticdc_lab.simulate.pd.looking",
    ),
    "DDL service": ("ticdc_lab.simulate.ddl_service.run", "ticdc_lab.ddl_service", "ticdc_lab.ddl_service.client"),
    "Figures": ("ticdc_lab.figures", "ticdc_lab.figures.selecting", "ticdc_lab.answers.summary"),
    "Panels and reports": (
        "ticdc_lab.widgets",
        "ticdc_lab.widgets.panel",
        "ticdc_lab.widgets.linking",
        "ticdc_lab.engine.running",
        "ticdc_lab.report",
    ),
}
"""Pages of the API reference, and the modules on each."""

COMMANDS = {"contents": "report", "consumers": "consumer"}
"""Questions whose command has another name than the method."""


def setup(app: Sphinx) -> dict[str, Any]:
    """Write the pages before Sphinx looks for them."""
    app.connect("builder-inited", lambda app: write(Path(app.srcdir) / "generated"))
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}


def write(folder: Path) -> None:
    """Write each page whose text is another than before."""
    pages = {"cli.md": commands_page(), "columns.md": columns_page(), "events.md": events_page()}
    pages |= {f"api-{slug(title)}.rst": api_page(title, modules) for title, modules in API.items()}
    pages |= {f"question-{slug(name.replace('_', ' '))}.rst": question_page(name) for name in questions()}
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        if old.name not in pages:
            old.unlink()
    for name, text in pages.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def slug(title: str) -> str:
    """A title as part of a file's name."""
    return title.lower().replace(" ", "-")


def commands_page() -> str:
    """Every command with its help, as ``--help`` prints it."""
    from ticdc_lab.cli import main

    said = "Made from the commands themselves. `--json` prints one object on stdout and nothing else there."
    return f"# Command line\n\n{said}\n" + "".join(
        f"\n## {name}\n\n```text\n{shown}\n```\n" for name, shown in helps(main, "ticdc-lab")
    )


def questions() -> list[str]:
    """The methods of a log that give an answer, in the order of its source."""
    from ticdc_lab.log import Log

    methods = [n for n, m in vars(Log).items() if inspect.isfunction(m) and not n.startswith("_")]
    return [n for n in methods if getattr(Log, n).__annotations__.get("return") == "Answer"]


def question_page(name: str) -> str:
    """A question: the method's docstring, and the help of the command that asks the same, if there is one."""
    from ticdc_lab.cli import main
    from ticdc_lab.log import Log

    title = (inspect.getdoc(getattr(Log, name)) or name).splitlines()[0].replace("``", "").rstrip(".")
    line, command = "=" * len(title), COMMANDS.get(name, name)
    text = f"{title}\n{line}\n\n.. automethod:: ticdc_lab.log.Log.{name}\n   :no-index:\n"
    if command not in main.commands:
        return text
    shown = next(helps(main.commands[command], command, click.Context(main, info_name="ticdc-lab")))[1]
    told = "".join(f"   {row}".rstrip() + "\n" for row in shown.splitlines())
    return f"{text}\nThe command that asks the same:\n\n.. code-block:: text\n\n{told}"


def helps(command: click.Command, name: str, parent: click.Context | None = None) -> Iterator[tuple[str, str]]:
    """The name of each command and its help, groups before what is in them."""
    context = click.Context(command, info_name=name, parent=parent, terminal_width=100, max_content_width=100)
    yield context.command_path, command.get_help(context)
    if isinstance(command, click.Group):
        for child in command.list_commands(context):
            yield from helps(command.commands[child], child, context)


def columns_page() -> str:
    """Every frame of :mod:`ticdc_lab.events.schema`, a line a column."""
    from ticdc_lab.events import schema

    said = constants_of(Path(inspect.getfile(schema)))
    frames = {name: value for name, value in vars(schema).items() if isinstance(value, StructType) and name in said}
    text = "# Columns of the frames\n\nMade from `ticdc_lab/events/schema.py`; `df.schema` shows the same.\n"
    for name, frame in frames.items():
        text += f"\n## {name}\n\n{plain(said[name])}\n\n| column | type | |\n|---|---|---|\n"
        text += "".join(f"| `{f.name}` | {kind(f)} | {meaning(f)} |\n" for f in frame.fields)
    return text


def events_page() -> str:
    """Every event that a scenario file can name, a line each, from the models' tables."""
    text = "# Events of scenarios\n\nMade from the tables that the reader of scenario files uses. An event is "
    text += "`{at: 3s, EVENT: VALUE, FIELD: ..}`; a field with a default can be left out.\n"
    known: list[type] = []
    for name in MODELS:
        kinds = {k: of for k, of in model_named(name).events.items() if of not in known}
        known += kinds.values()
        text += f"\n## {name}\n\n| event | fields beside it | what happens |\n|---|---|---|\n"
        for kind, of in kinds.items():
            main, *others = fields(of) or [None]
            value = f": {yaml_name(main.name)}" if main else ""
            beside = ", ".join(f"`{yaml_name(f.name)}`{_default(f)}" for f in others if f)
            says = " ".join(str(of.__doc__).split("\n\n")[0].split()).replace("|", "\\|")
            text += f"| `{kind}{value}` | {beside} | {plain(says)} |\n"
    text += "\n## What a trace is about\n\nThe subjects of rows of kind `changed`, who writes them, what they hold.\n"
    text += "\n| subject | written by | before and after | states |\n|---|---|---|---|\n"
    for name, subject in SUBJECTS.items():
        text += f"| `{name}` | {subject.writers} | {subject.holds} | {', '.join(subject.states)} |\n"
    return text


def _default(field: Field[Any]) -> str:
    plain_default = field.default is not MISSING and field.default not in (None, "", ())
    return f" ({str(field.default).lower()})" if plain_default else "" if field.default is MISSING else " (optional)"


@cache
def constants_of(path: Path) -> dict[str, str]:
    """The constants of a module that have a docstring below them, with it."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return {
        target.id: after.value.value
        for before, after in pairwise(body)
        if isinstance(before, ast.Assign | ast.AnnAssign)
        and isinstance(after, ast.Expr)
        and isinstance(after.value, ast.Constant)
        and isinstance(after.value.value, str)
        for target in (before.targets if isinstance(before, ast.Assign) else [before.target])
        if isinstance(target, ast.Name)
    }


def plain(text: str) -> str:
    """A docstring's markup as Markdown."""
    return re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text).replace("``", "`")


def kind(field: StructField) -> str:
    """A column's type in SQL's words, structs by the names of their fields."""
    if isinstance(field.dataType, ArrayType) and isinstance(field.dataType.elementType, StructType):
        return f"array of ({', '.join(field.dataType.elementType.names)})"
    if isinstance(field.dataType, StructType):
        return f"({', '.join(field.dataType.names)})"
    return field.dataType.simpleString()


def meaning(field: StructField) -> str:
    """A column's comment."""
    return str(field.metadata.get("comment", "")).replace("|", "\\|")


def api_page(title: str, modules: tuple[str, ...]) -> str:
    """The public names of some modules, from their docstrings."""
    line = "=" * len(title)
    return f"{title}\n{line}\n" + "".join(module_section(importlib.import_module(name)) for name in modules)


def module_section(module: ModuleType) -> str:
    """A module: its docstring, then its names."""
    name = module.__name__
    text = f"\n{name}\n{'-' * len(name)}\n\n.. automodule:: {name}\n   :no-members:\n{again(module)}\n"
    return text + "".join(entry(module, public) for public in public_names(module))


def again(module: ModuleType) -> str:
    """The option for names of the package itself, all documented where it is made, too."""
    return "   :no-index:\n" if module.__name__ == "ticdc_lab" else ""


def entry(module: ModuleType, public: str) -> str:
    """The directive for one public name."""
    value, full = getattr(module, public), f"{module.__name__}::{public}"
    if inspect.ismodule(value):
        return f"``{full.replace('::', '.')}``\n   {(inspect.getdoc(value) or '').splitlines()[0]}\n\n"
    if inspect.isclass(value):
        return f".. autoclass:: {full}\n   :members:\n{again(module)}\n"
    if inspect.isfunction(value):
        return f".. autofunction:: {full}\n{again(module)}\n"
    if home := defined_in(module, public):
        said = " ".join(constants_of(Path(home))[public].split())
        return f".. py:data:: {full.replace('::', '.')}\n{again(module)}\n   {said}\n\n"
    return ""


def public_names(module: ModuleType) -> list[str]:
    """A module's public names: ``__all__``, else what is defined in it without an underscore."""
    if hasattr(module, "__all__"):
        return sorted(module.__all__, key=str.casefold)
    tree = ast.parse(Path(inspect.getfile(module)).read_text(encoding="utf-8"))
    defined = [n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)]
    return [n for n in [*constants_of(Path(inspect.getfile(module))), *defined] if not n.startswith("_")]


def defined_in(module: ModuleType, public: str) -> str | None:
    """The file that defines a constant: the module's, or one below it."""
    files = [inspect.getfile(module)]
    files += [
        str(Path(files[0]).parent / f"{m.name}.py") for m in pkgutil.iter_modules(getattr(module, "__path__", []))
    ]
    return next((f for f in files if Path(f).exists() and public in constants_of(Path(f))), None)
