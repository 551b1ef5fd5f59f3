"""Apache Spark on this machine: its JVM, its settings, and what goes wrong when it starts."""

from __future__ import annotations

import logging
import os
import shutil
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from ticdc_lab.engine import class_archive, worker_daemon
from ticdc_lab.engine.environment import MADE_HERE, SESSION_SETTINGS, cpus, java_options, require_java
from ticdc_lab.engine.jars import jar_paths
from ticdc_lab.errors import SetupError
from ticdc_lab.errors.whole_files import temporary_folder

_LOG = logging.getLogger(__name__)
_NOISE = (b"WARNING: Using incubator modules",)
_DELTA_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"

DELTA_SETTINGS: Mapping[str, str] = MappingProxyType(
    {
        "spark.sql.extensions": _DELTA_EXTENSION,
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "2",
    }
)
"""What a session of the caller's own needs for Delta, beside the jars."""

ARROW_OPTIONS = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
"""JVM options for the driver and the executors: Arrow's Java side stops checking every single access.

What it reads was written by pyarrow in a worker of the same job. Measured on decoding to events: the JVM's share falls
from 13 to 5 CPU seconds a million rows.
"""


_PLANNED_ONCE = MappingProxyType({"spark.sql.adaptive.enabled": "false", "spark.sql.ui.explainMode": "simple"})
"""Adaptive execution plans a query again after each of its stages, and describes each plan for a page that is off here.

It coalesces partitions and splits skewed ones, and one process has no more of them than cores. An audit of 2,000 events
took three times its CPU time so, one of 600,000 events as much as without.
"""


_SHUFFLED_HERE = MappingProxyType(
    {
        "spark.shuffle.compress": "false",
        "spark.shuffle.checksum.enabled": "false",
        "spark.sql.shuffle.orderIndependentChecksum.enabled": "false",
        "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": "false",
    }
)
"""What one process hands to itself by its disk needs neither small files nor sums that show a broken copy.

With :data:`COLLECTOR` the JVM's share of an audit of ten million events falls from 3.5 to 2.5 CPU seconds.
"""


COLLECTOR = "-XX:+UseParallelGC"
"""The collector of a process whose JVM moves rows: nothing waits for its pauses, and G1's marking beside them costs."""


BRIEF_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC -Xms512m"
"""JVM options of a process that runs many small queries once each: the optimising compiler takes half of its CPU time.

Without that compiler Java would keep 48 MB for code, which the classes that Spark generates fill within minutes, and
begin with 16 MB of heap.
"""


def local_spark(
    *, app_name: str, driver_memory: str, cores: int | str, brief: bool, extra: Mapping[str, str]
) -> SparkSession:
    """Start a quiet local Spark with Delta, as :func:`ticdc_lab.engine.sessions.session` describes it.

    Raises
    ------
    SetupError
        Java or a jar is missing or wrong.
    """
    java = require_java().executable
    settings = _settings(app_name, driver_memory, cores, brief, extra, java)
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    with _own_environment():
        context = _context(conf)
    _remember_classes(SparkContext._jvm)
    # where the JVM is killed its other end fails in a thread of its own, with a trace beside our sentence
    context._accumulatorServer.handle_error = lambda *_: None  # type: ignore[method-assign]
    quiet_gateway()
    return SparkSession(context)


def quiet_gateway() -> None:
    """Keep what py4j logs of a JVM that has ended, trace and all, from standing beside our sentence."""
    logging.getLogger("py4j").propagate = False
    logging.getLogger().addFilter(lambda record: record.msg != "Exception while sending command.")


def _settings(
    app_name: str, driver_memory: str, cores: int | str, brief: bool, extra: Mapping[str, str], java: Path
) -> dict[str, str]:
    log4j = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"
    ours = {
        "spark.app.name": app_name,
        "spark.master": f"local[{cores}]",
        "spark.driver.memory": driver_memory,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.redaction.options.regex": "(?i)url|jaas|keystore[.]key",
        "spark.sql.codegen.cache.maxEntries": "1000",  # each of fifty tables needs several
        "spark.sql.shuffle.partitions": str(cpus() if cores == "*" else cores),
        **SESSION_SETTINGS,
        **_PLANNED_ONCE,
        **DELTA_SETTINGS,
    }
    archive, master = "", extra.get("spark.master", ours["spark.master"])
    one_process = master == "local" or master.startswith("local[")  # driver and tasks are
    ours |= _SHUFFLED_HERE | _forked_here() if one_process else {}
    if "spark.jars" not in extra:
        jars = jar_paths()
        if one_process:
            # one JVM: it need not serve itself copies of them, and classes of its class path can be archived
            ours["spark.driver.extraClassPath"] = os.pathsep.join(map(str, jars))
            archive = class_archive.options(jars, java)
        else:
            ours["spark.jars"] = ",".join(path.as_uri() for path in jars)
    if "spark.sql.warehouse.dir" not in extra:
        ours["spark.sql.warehouse.dir"] = temporary_folder().as_uri()
    theirs = extra.get("spark.driver.extraJavaOptions", "")
    own = BRIEF_OPTIONS if brief else COLLECTOR if one_process else ""
    own = java_options(own, theirs, extra.get("spark.driver.defaultJavaOptions", ""))
    given = f"{log4j} {ARROW_OPTIONS} {own} {archive} {theirs}"
    return ours | dict(extra) | {"spark.driver.extraJavaOptions": given, MADE_HERE: "true"}


def _forked_here() -> dict[str, str]:
    """The workers of one process are this Python, and find modules where the driver does, this package among them.

    Without the last, which Spark itself sets for some kinds of functions only, those have a daemon of their own.
    """
    return {
        "spark.python.daemon.module": worker_daemon.__name__,
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(p or os.getcwd() for p in sys.path),
        "spark.executorEnv.SPARK_SIMPLIFIED_TRACEBACK": "1",
    }


@contextmanager
def _own_environment() -> Iterator[None]:
    """Driver, JVM and workers are one machine here, so this Python and the Spark inside it are the only right ones.

    What a user has set for a cluster (another Python, another Spark, its defaults) holds again afterwards.
    """
    ours = {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_CONF_DIR": None,
    }
    before = {name: os.environ.get(name) for name in ours}
    theirs = before["PYSPARK_PYTHON"] or sys.executable
    if shutil.which(theirs) != sys.executable:
        _LOG.warning("PYSPARK_PYTHON=%s is not this Python; the local workers use %s", theirs, sys.executable)
    _set_variables(ours)
    try:
        yield
    finally:
        _set_variables(before)


def _set_variables(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _context(conf: SparkConf) -> SparkContext:
    if SparkContext._gateway is not None:
        _require_class(_DELTA_EXTENSION)
        return SparkContext(conf=conf)
    said: list[str] = []
    try:
        with _filtered_stderr(said) as sink:
            gateway = launch_gateway(conf, {"stdout": sink, "stderr": sink})  # type: ignore[no-untyped-call]
    except PySparkException as error:
        complaint = ": ".join([line for line in said if not line.startswith("at ")][:2])
        raise SetupError(
            f"Java did not start Spark: {complaint or 'it printed nothing'}.",
            hint="Run: ./lab setup   (it checks Java and the jars)",
        ) from error
    return SparkContext(conf=conf, gateway=gateway)


_ASKED_FOR = {
    "org.apache.spark.sql.functions": ("coalesce", "col", "lit", "when"),
    "functions": ("col", "lit", "not"),
    "PythonUtils": ("toSeq",),
    "PythonSQLUtils": (),
    "org.apache.spark.sql.classic.SparkSession": ("getActiveSession",),
}
"""What PySpark reads in the JVM, by name and again, whenever a column or a query is written."""


def _remember_classes(jvm: Any) -> None:
    """Keep what those names mean: Java looks for some of them in all of Spark's jars, a millisecond each time."""
    for name, members in _ASKED_FOR.items():
        found = getattr(jvm, name)
        for member in members:
            setattr(found, member, getattr(found, member))
        setattr(jvm, name, found)


def _require_class(name: str) -> None:
    """Check that the JVM that an earlier session of this process has left behind knows the class ``name``."""
    jvm = SparkContext._jvm
    assert jvm is not None
    if not jvm.org.apache.spark.util.Utils.classIsLoadable(name):
        raise SetupError(
            f"An earlier Spark session of this process has started a Java without {name}.",
            hint="Restart Python (in a notebook: the kernel), and call ticdc_lab.session first.",
        )


@contextmanager
def _filtered_stderr(said: list[str]) -> Iterator[int]:
    """A descriptor for what the JVM prints: it goes to ``said`` and on to our stderr, unless it is known noise.

    Our stdout belongs to answers. Java warns of the incubator module with which Spark 4 starts, and no option of Java
    silences that.
    """
    read, write = os.pipe()

    def relay() -> None:
        with os.fdopen(read, "rb") as lines:
            for line in lines:
                if not line.startswith(_NOISE):
                    said[20:] = [line.decode(errors="replace").strip()]
                    with suppress(OSError):
                        os.write(2, line)

    thread = threading.Thread(target=relay, name="jvm-stderr", daemon=True)
    thread.start()
    try:
        yield write
    except PySparkException:
        os.close(write)
        thread.join(timeout=5)
        raise
    os.close(write)
