"""A session of each engine for the suite, and the golden data as DataFrames."""

from __future__ import annotations

import atexit
import gc
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from functools import cache, partial
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from _pytest.unraisableexception import gc_collect_iterations_key
from hypothesis import settings
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType
from xdist.scheduler import LoadFileScheduling

from ticdc_lab.codecs.keys import with_keys
from ticdc_lab.engine import sessions, shuffle, speeds
from ticdc_lab.engine.classic import BRIEF_OPTIONS
from ticdc_lab.engine.sail_process import FEW_SEARCHES
from ticdc_lab.errors import SetupError
from ticdc_lab.events.schema import EVENTS
from ticdc_lab.sources.load import load

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent / "browser"))
import broker as brokers
import engines
import killing
from checked_figures import every_figure_is_plotlys
from cluster import UNVERIFIED
from lab_fixtures import lab, pictures

__all__ = ["every_figure_is_plotlys", "lab", "pictures"]

ROOT = Path(__file__).resolve().parent.parent
MADE = "TICDC_LAB_TESTS_MADE"
"""Shows workers the file that is there once kernels and jars are."""

WITHOUT_JAVA = pytest.StashKey[bool]()
"""Whether tests that start Java are left out."""

# without it jsonschema, which nbformat needs, builds a grammar of addresses that nothing here has: a second a process
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
shuffle.BUCKETS = 3  # what tests judge is small, and each part costs its own run of a kernel


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--engine spark`` runs every module on Spark, as before a release; ``--quick`` the pure core alone.

    ``--java`` adds to the whole suite the tests that start Java: CI and a release run them.
    """
    parser.addoption("--engine", choices=("embedded", "spark"), default="embedded", help="of modules not marked spark")
    parser.addoption("--quick", action="store_true", help="the pure core: one case of each test, no process")
    parser.addoption("--java", action="store_true", help="the whole suite with Spark, Kafka and clusters")


def pytest_configure(config: pytest.Config) -> None:
    """Kernels and jars, which each worker would make or wait for at once, are made while the workers find tests."""
    settings.register_profile("no clock", deadline=None)  # a machine that does other things is no fault
    settings.load_profile("no clock")
    config.stash[WITHOUT_JAVA] = _without_java(config)
    config.stash[gc_collect_iterations_key] = 0  # of five, each a second or more of a heap that ends with the process
    gc.set_threshold(FEW_SEARCHES)
    os.environ.setdefault("SPARK_SUBMIT_OPTS", f"{BRIEF_OPTIONS} {UNVERIFIED}")
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        making = Path(tempfile.mkdtemp(prefix="ticdc_lab-tests-")) / "made"
        os.environ[MADE] = str(making)
        config.add_cleanup(lambda: shutil.rmtree(making.parent, ignore_errors=True))
        broker = not config.getoption("--quick") and not config.stash[WITHOUT_JAVA]
        Thread(target=_make, args=(making, broker), daemon=True).start()


def _without_java(config: pytest.Config) -> bool:
    """Whether the whole suite is asked for as while one works: a file that is named runs whole, and so does soak."""
    whole = config.args == config.getini("testpaths") and config.getoption("-m") == "not soak"
    return whole and config.getoption("--engine") != "spark" and not config.getoption("--java")


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Show what is left out."""
    left_out = config.stash[WITHOUT_JAVA]
    return ["tests that start Java are left out; `./lab test --java` runs them too"] if left_out else []


def _make(made: Path, broker: bool) -> None:
    # the jars are a download, beside what computes; without a network the tests report it
    jars = "import broker; broker.jars()" if broker else ""
    fetching = subprocess.Popen([sys.executable, "-c", jars], cwd=Path(__file__).parent, stderr=subprocess.DEVNULL)
    compiling = subprocess.run([sys.executable, "-m", "ticdc_lab.codecs.kernel.compiling"], cwd=ROOT, check=False)
    fetching.wait()
    made.with_suffix(".new").write_text(str(compiling.returncode))
    made.with_suffix(".new").rename(made)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A quick run does not even read the files that it leaves out."""
    left_out = config.getoption("--quick") and collection_path.match("test_*.py") and not _is_pure(collection_path)
    return True if left_out else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Each worker looks for its tests from another place on: what one has read into bytecode the others need not.

    In a fresh clone, rewriting all assertions takes 13 CPU seconds.
    """
    config, worker = session.config, os.environ.get("PYTEST_XDIST_WORKER")
    if worker in ("gw1", "gw2") and config.args == config.getini("testpaths"):
        found = sorted(p for name in config.args for p in (ROOT / name).iterdir() if _may_hold_tests(p))
        if config.getoption("--quick"):  # what is named itself is not asked about in `pytest_ignore_collect`
            found = [p for p in found if p.is_dir() or _is_pure(p)]
        middle = len(found) // 2
        config.args = [str(p) for p in (reversed(found) if worker == "gw1" else found[middle:] + found[:middle])]


def _keep_constants() -> None:
    """Keep what Hypothesis reads of our code to try its constants: each worker begins with other modules.

    In a fresh clone this is 7 CPU seconds for a worker that finds nothing kept.
    """
    from hypothesis.internal.constants_ast import constants_from_module  # a single file may do without it

    own = [module for name, module in sys.modules.items() if name.startswith("ticdc_lab.")]
    first = len(own) * {"gw1": 1, "gw2": 2}.get(os.environ.get("PYTEST_XDIST_WORKER", ""), 0) // 3
    for module in own[first:] + own[:first]:
        constants_from_module(module)


def _may_hold_tests(path: Path) -> bool:
    return path.match("test_*.py") or any(path.rglob("test_*.py"))


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """A worker that has found its tests waits for what they all need."""
    if hasattr(session.config, "workerinput"):
        made = Path(os.environ[MADE])
        while not made.exists():
            time.sleep(0.1)
        if made.read_text() != "0":
            raise pytest.UsageError("the kernels do not compile: python -m ticdc_lab.codecs.kernel.compiling")


_STARTS_SPARK = re.compile(r"mark\.spark\b|^ *def \w+\([^)]*\bclassic\b|^(?:from|import) engines\b", re.MULTILINE)
_BOTH_ENGINES = re.compile(r"^(?:from|import) engines\b", re.MULTILINE)


class _OneJvm(LoadFileScheduling):
    """Files go to workers as they are, but those that ask Spark go to one of them.

    A second JVM would cost 5 CPU seconds to start and 2 to 10 to get warm, a second broker 5, and memory for both.
    """

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return "spark" if not self.config.stash[WITHOUT_JAVA] and _starts_spark(ROOT / file) else file


@cache
def _starts_spark(file: Path) -> bool:
    return _STARTS_SPARK.search(file.read_text(encoding="utf-8")) is not None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling:
    """How workers get their tests."""
    return _OneJvm(config, log)


@pytest.fixture(scope="session", autouse=True)
def no_process(request: pytest.FixtureRequest) -> Iterator[None]:
    """In a quick run a test that starts an engine, a broker, a browser or a command ends there as skipped.

    Each of them is a process, so no list shows which tests these are. Without ``--java`` one that starts Spark fails:
    it is to be left out, so it is marked ``spark``, or takes ``classic``.
    """
    with pytest.MonkeyPatch.context() as patched:
        if request.config.getoption("--quick"):
            patched.setattr(subprocess.Popen, "__init__", _not_quick)
        elif request.config.stash[WITHOUT_JAVA]:
            patched.setattr(subprocess.Popen, "__init__", _not_java(subprocess.Popen.__init__))
        yield


def _not_quick(*arguments: Any, **named: Any) -> None:
    pytest.skip("it starts a process")


def _not_java(begin: Callable[..., None]) -> Callable[..., None]:
    def begun(process: Any, args: Any, *more: Any, **named: Any) -> None:
        first = args if isinstance(args, str | bytes | os.PathLike) else args[0]
        if Path(os.fsdecode(first)).name in ("spark-class", "spark-submit"):
            pytest.fail("it starts Spark, and is not left out where Java is: mark it `spark`")
        begin(process, args, *more, **named)

    return begun


@pytest.fixture(autouse=True)
def no_measured_speeds(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test begins on a machine that has read no log; what the suite reads is not the user's experience."""
    folder = tmp_path_factory.getbasetemp() / "speeds"
    shutil.rmtree(folder, ignore_errors=True)
    monkeypatch.setattr(speeds, "cache_folder", lambda: folder)


LONG = (
    "test_engines_agree", "test_notebooks", "test_ingest", "test_kafka", "test_replay", "test_spark_cluster",
    "test_two_engines", "test_both_engines", "test_accessible", "test_classic", "test_load", "test_datasource",
    "test_embedded", "test_object_stores", "test_workload_frame", "test_log", "test_etcd", "test_golden", "test_study",
    "test_audit_plan", "test_cli", "test_transactions", "test_ddl_scenarios", "test_small_variants", "test_vectors",
    "test_v2_random", "test_changefeeds", "test_truth", "test_watch_buckets", "test_pd_world_network", "test_faults",
    "test_target_compare", "test_watched_comparison",
)  # fmt: skip
"""Files of eight seconds and more, the longest first: workers end at about the same time if these begin."""

QUICK_CASES, QUICK_EXAMPLES = 1, 20
"""A quick run has so many of the cases of each test, and of a test that draws its cases so many of these at most."""

_DRAWN = "_hypothesis_internal_use_settings"
"""Where Hypothesis keeps the settings of a test: it has no public way to set fewer examples than a test states."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long files first, the order inside a file as it is; the ones of one folder need a browser.

    A quick run has of a test with many cases the first.
    """
    if config.getoption("--quick"):
        cases = Counter[str]()
        kept: dict[bool, list[pytest.Item]] = {True: [], False: []}
        for item in items:
            test = item.nodeid.partition("[")[0]
            cases[test] += 1
            kept[cases[test] <= QUICK_CASES].append(item)
            of = getattr(item, "obj", None)
            if own := getattr(of, _DRAWN, None):
                setattr(of, _DRAWN, settings(own, max_examples=min(own.max_examples, QUICK_EXAMPLES)))
        config.hook.pytest_deselected(items=kept[False])
        items[:] = kept[True]
    if config.stash[WITHOUT_JAVA]:
        config.hook.pytest_deselected(items=[item for item in items if _starts_java(item)])
        items[:] = [item for item in items if not _starts_java(item)]
    if "PYTEST_XDIST_WORKER" in os.environ:
        _keep_constants()
    for item in items:
        if item.path.parent.name == "browser":
            item.add_marker(pytest.mark.browser)
    items.sort(key=lambda item: (_length(item.path), item.path))


def _starts_java(item: pytest.Item) -> bool:
    asked = {"classic", "broker"}.intersection(getattr(item, "fixturenames", ()))
    return bool(asked or item.get_closest_marker("spark") or _is_of_both_engines(item.path))


@cache
def _is_of_both_engines(file: Path) -> bool:
    return _BOTH_ENGINES.search(file.read_text(encoding="utf-8")) is not None


@cache
def _is_pure(file: Path) -> bool:
    """Whether a quick run has a file; a doctest takes the skip of what starts a process for its answer."""
    outside = file.parent.name == "browser" or file.stem == "test_examples" or _starts_spark(file)
    return _length(file) == len(LONG) and not outside


@cache
def _length(file: Path) -> int:
    return next((i for i, name in enumerate(LONG) if file.stem.startswith(name)), len(LONG))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Where there is no browser its tests are skipped, but not where CI promises one."""
    browser = all(map(shutil.which, ("chromium", "chromedriver")))
    if item.get_closest_marker("browser") and not browser:
        leave = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        leave("no browser; run: sudo apt-get install -y chromium chromium-driver")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure of a test that kills at moments of a seed shows how to repeat it."""
    report = yield
    if report.failed and any(v is killing.killed for v in vars(getattr(item, "module", object)).values()):
        report.sections.append(("repeat it", killing.repeating(item.nodeid)))
    return report


def pytest_unconfigure() -> None:
    """No engine outlives the tests."""
    engines.stop_all()


_MANY = 20_000


def golden(name: str) -> Path:
    """A golden file by name, wherever the project keeps it."""
    for folder in (ROOT / "data", ROOT / "tests/data/golden", ROOT / "tests/data/golden/extra"):
        if (folder / name).exists():
            return folder / name
    raise FileNotFoundError(name)


def json_lines(name: str) -> Iterator[dict[str, Any]]:
    """Records of a golden JSON Lines file."""
    with gzip.open(golden(name), "rt", encoding="utf-8") as f:
        for line in f:
            yield json.loads(line)


@pytest.fixture(scope="module", autouse=True)
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    """Show on which engine a module runs: the one of ``--engine``, or Spark where the module is marked ``spark``."""
    name = "spark" if request.node.get_closest_marker("spark") else request.config.getoption("--engine")
    with engines.using(name):
        yield name


@pytest.fixture(scope="module")
def spark(engine: str) -> SparkSession:
    """Give the suite's session of the module's engine."""
    return engines.session_of(engine)


@pytest.fixture(scope="module")
def interpreted(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let Spark compile nothing for many queries that run once over a few rows: that takes most of their time."""
    if request.config.getoption("--engine") == "spark":  # before a release all is as people have it
        yield
        return
    with engines.using("spark"):
        own = engines.session_of("spark")
    with sessions.interpreted(own, 0):
        yield


@pytest.fixture
def classic() -> Iterator[SparkSession]:
    """Give a session of Spark to one test of a module that otherwise runs on the embedded engine."""
    with engines.using("spark"):
        yield engines.session_of("spark")


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder that holds the package as its wheel installs it, and nothing of the repository."""
    folder, quiet = tmp_path_factory.mktemp("wheel"), {"check": True, "capture_output": True}
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder], cwd=ROOT, **quiet)
    [wheel] = folder.glob("*.whl")
    pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--no-compile", "--target", folder / "installed", wheel], **quiet)
    return folder / "installed"


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[brokers.Broker]:
    """Give the one Kafka broker of the suite; its 45 jars are fetched once, which takes a minute."""
    try:
        brokers.jars()
    except SetupError as error:
        leave = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        leave(f"no broker: {error.message}")
    with brokers.running(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture(scope="module")
def events_of(spark: SparkSession) -> Any:
    """``events_of("messages_open-protocol_small.jsonl.gz")``: a golden topic as events.

    tests/codecs/test_golden.py checks that they equal, field by field, the events of a decoder that shares no code.
    """
    return partial(_golden_events, spark)


@cache
def _golden_events(spark: SparkSession, name: str) -> DataFrame:
    """Decoded and hashed once a session: without a file each query on the embedded engine would do it again."""
    protocol = "open-protocol" if "open-protocol" in name else "canal-json"
    events = load(spark, str(golden(name)), protocol=protocol).events
    return computed(events.select(*EVENTS.names).transform(with_keys))


def computed(frame: DataFrame) -> DataFrame:
    """The rows of a frame, computed once: the embedded engine takes ``cache`` and keeps nothing."""
    return _in_a_file(frame.sparkSession, frame.toArrow(), frame.schema)


def events_frame(spark: SparkSession, events: list[dict[str, Any]]) -> DataFrame:
    """Events from plain dicts; what is left out is null. Many go through a file: a query takes 128 MB at most."""
    if len(events) < _MANY:
        rows = [tuple(_typed(f.name, e.get(f.name)) for f in EVENTS.fields) for e in events]
        return spark.createDataFrame(rows, EVENTS).transform(with_keys).cache()
    table = pa.Table.from_pylist(events, schema=to_arrow_schema(EVENTS))
    return _in_a_file(spark, table, EVENTS).transform(with_keys).cache()


def _in_a_file(spark: SparkSession, table: pa.Table, schema: StructType) -> DataFrame:
    folder = tempfile.mkdtemp(prefix="ticdc_lab-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    pq.write_table(table, f"{folder}/events.parquet")
    return spark.read.schema(schema).parquet(folder)


def _typed(name: str, v: Any) -> Any:
    if name in ("columns", "before") and v is not None:
        return [(c["name"], c["mysql_type"], c["value"], c["is_key"], c["flags"]) for c in v]
    return v
