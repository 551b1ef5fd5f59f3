"""Dependencies point one way, and what only one place may do no other place does (the map in CONTRIBUTING.md)."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

import ticdc_lab

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "ticdc_lab"

# From left to right: a module may import the ones of its own step and of the steps before it.
STEPS = (
    ("errors", "lazily", "words", "engine", "machines"),
    ("events",),
    ("settings",),
    ("facts",),
    ("codecs",),
    ("sources",),
    ("transactions",),
    ("dispatch",),
    ("encode",),
    ("audit", "tables", "faults", "ddl_core", "pd_core"),
    ("consumer", "repartition", "lake", "simulate", "ddl_service", "workload", "watch"),
    ("figures",),
    ("answers",),
    ("log",),
    ("report",),
    ("widgets",),
    ("cli",),
)
STEP = {name: i for i, names in enumerate(STEPS) for name in names}

# Where rows come to the driver, and why they are few.
TO_THE_DRIVER = {
    "engine/first_queries.py": "a thousand rows of its own",
    "facts/catalog.py": "the DDL statements of a log",
    "cli/common.py": "aggregates that are printed",
    "sources/provenance.py": "one row a Kafka partition",
    "sources/change_log.py": "one row a task: the file it wrote, counts, and what is known of the whole log",
    "sources/learned.py": "table versions of the simple protocol, and the DDL in a folder's schema files",
    "lake/tables.py": "the commits of five tables, as far back as Delta keeps them; few table versions; files",
    "facts/limits.py": "one row of counts, and at most as many rows as a topic has partitions",
    "consumer/log.py": "at most a million narrow events, or images of 100,000 row changes, refused above",
    "lake/ingest.py": "one row a Kafka partition, a watermark and a file of a task, each batch",
    "engine/shuffle.py": "quantiles: as many numbers as were asked for",
    "consumer/sinks/delta.py": "a row a table, each batch; how far a target is: a row a partition, a table, a note",
    "consumer/replay_compare.py": "counts of each table, and the first rows that differ",
    "dispatch/advise_facts.py": "facts of each table and column, ten keys a table",
    "dispatch/settings.py": "names of tables, and their columns where no DDL has them",
    "dispatch/infer.py": "a rule a table, some thousand keys, at most a million events that no rule puts there",
    "dispatch/zones.py": "of each table no rule explains, the zones and rules that may",
    "dispatch/whatif.py": "counters, one row a table, and the keys of the counterexamples",
    "faults/plant.py": "the lives of some hundred rows, watermarks and DDL",
    "sources/fsck.py": "the file metadata, which holds one number",
    "repartition/compare.py": "a few lines a partition, three a procedure",
    "repartition/cost.py": "counts, and one row a partition",
    "repartition/expand.py": "tables, topics, rules of tables, and the watermarks of some seconds",
    "sources/pieces.py": "a sample of 256 messages, and which offsets each file of a folder holds",
    "sources/stored.py": "at most a row a core, of those that do not see a folder",
    "transactions/restoring.py": "as many moments as repeats are listed",
    "tables/as_of.py": "why rows are known in part, and one count",
    "tables/knowledge.py": "facts of each partition and table, and the first row of a table that no DDL defines",
    "tables/naming.py": "the one table that a text with several dots names",
    "sources/storage.py": "one row of counts over the first records of up to 32 files",
    "sources/kafka_writing.py": "a row a partition: how many messages it took",
    "sources/record.py": "a row a task: the file it wrote",
    "sources/survey.py": "a row of counts for each table and partition",
    "answers/summary.py": "aggregates that are drawn",
    "answers/audit.py": "the tables whose rows have unknown names",
    "audit/contradicted.py": "counts of what images show, a row a table, and one place of each list of column names",
    "audit/run.py": "findings, as many of each guarantee as were asked for, and the keys of their rows",
    "audit/old_values.py": "per part of a log, at most BLOCKS, where its updates have images before them",
    "engine/workers.py": "one row, to try the workers",
    "watch/spark.py": "what a batch states besides its rows, and the rows of a bucket of which something was found",
    "workload/generate.py": "one row a task: the file it wrote",
}


def modules() -> list[Path]:
    """Every module of the package."""
    return sorted(PACKAGE.rglob("*.py"))


def part(path: Path) -> str:
    """The part of the package that a module belongs to: its folder or its own name."""
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


class Module(NamedTuple):
    """What the checks ask of a module, and the package has so many that each is parsed once."""

    imports: frozenset[str]
    """Full names of all that it imports, wherever it does so; not what it needs for types alone."""
    classes: list[str]


@cache
def read(path: Path) -> Module:
    """Parse a module."""
    tree = _without_types(ast.parse(path.read_text(encoding="utf-8")))
    imports: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom):
            imports |= {f"{node.module}.{a.name}" for a in node.names}
    return Module(frozenset(imports), [node.name for node in tree.body if isinstance(node, ast.ClassDef)])


def _without_types(tree: ast.Module) -> ast.Module:
    """The module without its ``if TYPE_CHECKING`` blocks."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and _last_name(node.test) == "TYPE_CHECKING":
            node.body = []
    return tree


def _last_name(node: ast.expr) -> str:
    return str(getattr(node, "id", getattr(node, "attr", "")))


def roots(path: Path) -> set[str]:
    """The top names of what a module imports."""
    return {name.split(".")[0] for name in read(path).imports}


def own_parts(path: Path) -> set[str]:
    """The parts of the package that a module imports."""
    return {name.split(".")[1] for name in read(path).imports if name.startswith("ticdc_lab.")} & set(STEP)


def backwards(path: Path) -> list[str]:
    """Parts further right that a module imports."""
    return sorted(other for other in own_parts(path) if STEP[other] > STEP[part(path)])


def calls(path: Path, *names: str) -> list[str]:
    """Methods of these names that a module calls."""
    source = path.read_text(encoding="utf-8")
    if not re.search(rf"\b(?:{'|'.join(names)})\b", source):  # to parse the whole package takes 1.5 CPU seconds
        return []
    tree = ast.parse(source)
    attributes = (n.func for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute))
    return [f.attr for f in attributes if f.attr in names]


def tracked() -> list[Path]:
    """The repository's own files."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    return [ROOT / name for name in listed.decode().split("\0") if name and (ROOT / name).is_file()]


def test_every_part_has_its_step() -> None:
    """A new part of the package is given its place in the flow here."""
    assert {part(p) for p in modules()} - {"__init__"} <= set(STEP)


def test_dependencies_point_one_way() -> None:
    """No module imports from a part further right in the flow; those that do are all listed."""
    against = {p.relative_to(PACKAGE): backwards(p) for p in modules() if p != PACKAGE / "__init__.py"}
    assert {path: parts for path, parts in against.items() if parts} == {}


def test_no_module_leans_on_the_package_as_a_whole() -> None:
    """Public names are for users: a module imports from where a thing is made, so that the flow stays visible."""
    shortcuts = {name for name in ticdc_lab.__all__ if not inspect.ismodule(getattr(ticdc_lab, name))}
    users = {p.relative_to(PACKAGE): roots_of_package(p) & shortcuts for p in modules() if p != PACKAGE / "__init__.py"}
    assert {path: names for path, names in users.items() if names} == {}


def roots_of_package(path: Path) -> set[str]:
    """What a module imports from the package itself: ``from ticdc_lab import ..``."""
    source = path.read_text(encoding="utf-8")
    if not re.search(r"from\s+ticdc_lab\s+import", source):
        return set()
    tree = _without_types(ast.parse(source))
    found = [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module == "ticdc_lab"]
    return {alias.name for node in found for alias in node.names}


def imported(path: Path, known: Collection[str]) -> set[str]:
    """Give the modules that one imports, wherever it does so; not what it needs for types alone."""
    return {one if one in known else one.rpartition(".")[0] for one in read(path).imports}


def circles(paths: Mapping[str, Path]) -> list[list[str]]:
    """Give every circle of modules that import one another: of one that was found its first import is passed over."""
    graph = {name: imported(path, paths) & paths.keys() - {name} for name, path in paths.items()}
    found: list[list[str]] = []
    while True:
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            *circle, _ = error.args[1]  # each is imported by the next, and the first is at the end again
            found.append(circle)
            graph[circle[1 % len(circle)]].discard(circle[0])
        else:
            return found


def test_no_modules_import_one_another_in_a_circle(tmp_path: Path) -> None:
    """Neither as they are read nor inside a function; two circles that are planted are both listed."""
    paths = {".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): p for p in modules()}
    assert len(paths) > 500 and circles(paths) == []
    for one, other in (("a", "b"), ("b", "a"), ("c", "d"), ("d", "e"), ("e", "c")):
        (tmp_path / f"{one}.py").write_text(f"def late() -> None:\n    from ticdc_lab import {other}\n")
    planted = {f"ticdc_lab.{name}": tmp_path / f"{name}.py" for name in "abcde"}
    assert sorted(sorted(circle) for circle in circles(planted)) == [
        [f"ticdc_lab.{name}" for name in names] for names in ("ab", "cde")
    ]


def test_only_widgets_know_the_notebook() -> None:
    """IPython and ipywidgets are imported by the widgets and by nothing left of them."""
    users = {part(p) for p in modules() if roots(p) & {"IPython", "ipywidgets"}}
    assert users <= {"widgets"}


def test_figures_take_small_frames_and_need_no_spark() -> None:
    """A figure is a pure function of a small frame: no pyspark in it."""
    assert [p.name for p in modules() if part(p) == "figures" and "pyspark" in roots(p)] == []


MAKERS = {"getOrCreate", "newSession"}
CALLED_MAKERS = {"SparkContext", "SparkSession", "launch_gateway", "session", "local_spark", "SailProcess"}


def session_makers(source: str) -> Iterator[str]:
    """Names in ``source`` with which an engine could be started."""
    if not re.search(rf"\b(?:{'|'.join(MAKERS)}|builder|(?:{'|'.join(CALLED_MAKERS)})\s*\()", source):
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            is_builder = node.attr == "builder" and _last_name(node.value) == "SparkSession"
            if node.attr in MAKERS or is_builder:
                yield node.attr
        if isinstance(node, ast.Call) and _last_name(node.func) in CALLED_MAKERS:
            yield _last_name(node.func)


def test_only_the_engine_room_starts_an_engine() -> None:
    """Nothing else builds a session; `open`, the command line and widgets that got none ask ``engine.session``."""
    outside = (p for p in modules() if part(p) != "engine")
    makers = {str(p.relative_to(PACKAGE)): set(session_makers(p.read_text(encoding="utf-8"))) for p in outside}
    assert {name: made for name, made in makers.items() if made} == {
        name: {"session"} for name in ("cli/common.py", "log.py", "widgets/opening.py", "widgets/workbench.py")
    }


@pytest.mark.parametrize(
    "planted",
    [
        "SparkSession.builder.getOrCreate()",
        "s = SparkSession(c)",
        "b = pyspark.sql.SparkSession.builder",
        "session()",
        "engine.session('spark')",
    ],
)
def test_a_hidden_session_is_found(planted: str) -> None:
    """The check above sees each way to start one."""
    assert list(session_makers(planted))


BEHIND_THE_ENGINE = re.compile(r"\bsparkContext\b|\b_jvm\b|\b_jsc\b|\.rdd\b|\b(?:from|import) py4j\b|\bObservation\(")


def test_only_the_engine_room_knows_which_engine_runs() -> None:
    """Outside of it there is nothing that Spark Connect does not offer."""
    users = {p.relative_to(PACKAGE) for p in modules() if BEHIND_THE_ENGINE.search(p.read_text(encoding="utf-8"))}
    assert {str(p) for p in users if p.parts[0] != "engine"} == set()


def test_rows_come_to_the_driver_only_where_they_are_few() -> None:
    """Nothing is collected but in the few places named here with the reason."""
    users = {str(p.relative_to(PACKAGE)) for p in modules() if calls(p, "collect", "toPandas", "toArrow")}
    assert users <= set(TO_THE_DRIVER), users - set(TO_THE_DRIVER)


def test_no_transform_caches_or_prints() -> None:
    """Transforms leave memory and standard output to the caller; the command line and the set-up speak."""
    cachers = {part(p) for p in modules() if calls(p, "cache", "persist")}
    printers = {part(p) for p in modules() if re.search(r"^\s*print\(", p.read_text(encoding="utf-8"), re.MULTILINE)}
    flow = {"events", "sources", "codecs", "facts", "transactions", "dispatch", "audit", "figures"}
    assert cachers & (flow - {"audit"}) == set()
    assert printers & flow == set()


def test_no_file_names_a_package_registry() -> None:
    """Where packages come from is the installation's business: no host of a registry is written anywhere."""
    word = re.compile(r"(?:pypi|pythonhosted|maven|anaconda|npmjs|jsdelivr|unpkg)[\w.-]*\.(?:org|com|net|io)\b")
    named = [str(p) for p in tracked() if word.search(_text(p))]
    assert named == []


def test_no_file_reaches_outside_the_repository() -> None:
    """What the project needs lies in it: no path leads to the folder beside it."""
    outside = re.compile(r"\.\./shared|/work" + "/shared")
    assert [str(p) for p in tracked() if outside.search(_text(p))] == []


def _text(path: Path) -> str:
    return "" if path.suffix in (".gz", ".png", ".parquet") else path.read_text(encoding="utf-8", errors="replace")


IN_TRACES = {
    "Append", "Checkpoint", "DispatchTableResponse", "Expire", "KeepAlive", "KeptAlive", "Leave", "Register", "Resign",
    "Restart", "TransferLeader",
}  # fmt: skip
"""Messages and commands of several protocols: traces and scenario files call them as their designs do."""


def classes_defined_twice(root: Path) -> dict[str, list[str]]:
    """Names of classes that two modules define, of the machines or of the rest: each of these is a world of its own.

    A machine's class may be called as one of the log's is: a trace has no rows of a topic.
    """
    where: dict[tuple[bool, str], list[str]] = {}
    for path in sorted(root.rglob("*.py")):
        simulates = path.relative_to(root).parts[0] in ("simulate", "machines", "ddl_core", "pd_core")
        for name in read(path).classes:
            if not (simulates and name in IN_TRACES):
                where.setdefault((simulates, name), []).append(str(path.relative_to(root)))
    return {name: modules for (_, name), modules in where.items() if len(modules) > 1}


def test_one_name_of_a_class_is_one_thing() -> None:
    """Who reads it in a trace or a docstring knows which is meant."""
    assert classes_defined_twice(PACKAGE) == {}


def test_a_class_that_is_defined_twice_is_seen(tmp_path: Path) -> None:
    """The check above finds one on either side, except for messages, and not one that both sides have."""
    (tmp_path / "simulate").mkdir()
    texts = {
        "a.py": "Thing Both",
        "b.py": "Thing",
        "simulate/c.py": "Both Model Append",
        "simulate/d.py": "Model Append",
    }
    for name, classes in texts.items():
        (tmp_path / name).write_text("".join(f"class {one}: ...\n" for one in classes.split()))
    twice = {"Thing": ["a.py", "b.py"], "Model": ["simulate/c.py", "simulate/d.py"]}
    assert classes_defined_twice(tmp_path) == twice


OF_PD = {"pd_core/why.py", "simulate/pd/world/patrol.py", "figures/why_table.py"}
"""Where PD's decisions, which are sentences still, are looked into."""

SENTENCES = {"because", "reason", "reasons", "stuck", "words"}
READ_BACK = {
    "contains", "count", "endswith", "extract", "find", "findall", "finditer", "fullmatch", "index", "match",
    "partition", "removeprefix", "removesuffix", "rpartition", "rsplit", "search", "split", "startswith",
}  # fmt: skip


def sentences_read_back(source: str) -> list[int]:
    """Lines in which an answer is looked for in the words of a reason: by ``in``, a pattern, or a method of texts."""
    found: list[int] = []
    for node in ast.walk(ast.parse(source)):
        read: list[ast.expr] = []
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
            read = node.comparators
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in READ_BACK:
            read = [node.func.value, *node.args[:2]]
        found += [node.lineno for one in read if _is_sentence(one)]
    return found


def _is_sentence(node: ast.expr) -> bool:
    """Whether it is a reason's words: ``row.because``, ``frame["because"].str``, ``(because or "").lower()``."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call | ast.BoolOp):
        if isinstance(node, ast.Attribute) and node.attr in SENTENCES:
            return True
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and node.slice.value in SENTENCES:
            return True
        if isinstance(node, ast.BoolOp):
            node = node.values[0]
        elif isinstance(node, ast.Call):
            is_method = isinstance(node.func, ast.Attribute)
            node = node.func if is_method or not node.args else node.args[0]
        else:
            node = node.value
    return isinstance(node, ast.Name) and node.id in SENTENCES - {"words"}


def test_no_answer_is_read_out_of_a_sentence() -> None:
    """A reason is a value (:class:`ticdc_lab.machines.machine.Reason`): its words are not searched for a name."""
    rooms = ("machines", "ddl_core", "pd_core", "simulate", "ddl_service", "figures", "widgets", "answers", "cli")
    sources = {p.relative_to(PACKAGE): p.read_text(encoding="utf-8") for p in modules() if part(p) in rooms}
    found = {str(path): sentences_read_back(source) for path, source in sources.items()}
    assert {path for path, lines in found.items() if lines} <= OF_PD


@pytest.mark.parametrize(
    "planted",
    [
        '"slowest" in state.stuck',
        '"with its state" in (trouble["because"] or "")',
        "SINCE.search(row.because or '')",
        "re.search(pattern, str(found.because))",
        'rows["because"].str.contains("DDL")',
        "because.split()",
        "reason.words.startswith('table')",
    ],
)
def test_a_sentence_that_is_read_back_is_seen(planted: str) -> None:
    """The check above sees each way, and none where nothing is read."""
    assert sentences_read_back(planted) == [1]
    assert sentences_read_back("why = because or 'none'; reason.kind in KINDS; words_of(text).split()") == []


def test_the_checks_see_a_planted_fault(tmp_path: Path) -> None:
    """Each way of reading a module finds what is forbidden, also inside a function, and not what is for types alone."""
    path = tmp_path / "planted.py"
    path.write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import polars\n"
        "def f(df):\n    from ticdc_lab.widgets.panel import x\n    import ipywidgets as w\n    return df.toPandas()\n"
    )
    assert roots(path) == {"typing", "ticdc_lab", "ipywidgets"}
    assert own_parts(path) == {"widgets"}
    assert calls(path, "toPandas") == ["toPandas"]


def test_the_map_names_every_room_in_the_order_of_imports() -> None:
    """CONTRIBUTING's table has a row for each room, and for nothing else; a room is behind those it may import."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = [name.strip("/") for name in re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)]
    rooms = [name.removesuffix(".py") for name in rows if "/" not in name]
    assert sorted(rooms) == sorted({part(path) for path in modules()} - {"__init__", "lazily"})
    steps = [STEP[name] for name in rooms]
    assert steps == sorted(steps)
    assert [name for name in rows if not (PACKAGE / name).exists()] == []


def test_the_files_that_contributing_draws_are_there() -> None:
    """The ways of a row and of an event name files as they are called now, and count them right."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    row, event = re.findall(r"```text\n(.*?)```\n", text, re.DOTALL)[:2]
    drawn = [re.findall(r"^.{15,32}?((?:\w+/)*[\w-]+\.(?:py|yaml))", of, re.MULTILINE) for of in (row, event)]
    assert min(map(len, drawn)) >= 5
    assert [name for of in drawn for name in of if not (PACKAGE / name).exists() and not (ROOT / name).exists()] == []
    counted = re.findall(r"the (\d+) files of this drawing, besides", text)
    besides = {"events/schema.py"}, {"data/scenarios/pipeline/lock-behind-a-crash.yaml"}
    assert [len({*of} - also) for of, also in zip(drawn, besides, strict=True)] == [*map(int, counted)]
