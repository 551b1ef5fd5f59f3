from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click
import pytest
from cluster import UNVERIFIED
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import ticdc_lab.engine as engine_room
from ticdc_lab import load
from ticdc_lab.cli import common
from ticdc_lab.engine import choosing, classic, workers
from ticdc_lab.engine.classic import ARROW_OPTIONS, _require_class
from ticdc_lab.engine.environment import JAVA_READS
from ticdc_lab.engine.sessions import session
from ticdc_lab.engine.workers import require_workers
from ticdc_lab.errors import SetupError

pytestmark = pytest.mark.spark

PACKAGE = Path(__file__).resolve().parent.parent.parent / "ticdc_lab"
FRESH_PROCESS = """
import json, sys
sys.path.insert(0, sys.argv[2])
from pyspark.sql import functions as F
from ticdc_lab import session

def worker(_):
    import only_here
    return sys.executable

spark = session("spark", cores=2, driver_memory="1g")
spark.range(3).write.format("delta").save(sys.argv[1])
worker = spark.range(1).select(F.udf(worker)("id")).first()[0]
spark.range(1).createOrReplaceTempView("v")
spark.sql("create table t using delta as select * from v")
print(json.dumps({"n": spark.read.format("delta").load(sys.argv[1]).count(), "worker": worker}))
"""


def test_asked_again_for_the_same(spark: SparkSession) -> None:
    """A notebook cell may be run twice: the same settings give the same session."""
    assert session("spark", cores=2) is spark


def test_a_column_is_written_with_few_calls_of_the_jvm(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """One for each part of it: PySpark by itself makes many of each, and some look through all jars."""
    from py4j.java_gateway import GatewayClient

    asked: list[str] = []
    send = GatewayClient.send_command

    def counted(self: Any, command: str, *args: Any, **kwargs: Any) -> Any:
        if not command.startswith("m\n"):  # what is no more needed is reported at any moment
            asked.append(command)
        return send(self, command, *args, **kwargs)

    F.col("a")  # the first asks for settings
    monkeypatch.setattr(GatewayClient, "send_command", counted)
    written = F.col("a") > F.lit(1)
    assert len(asked) == 3, (written, asked)
    asked.clear()
    written = F.when(written, F.lit(2))
    assert len(asked) == 2, (written, asked)


def test_another_session_is_left_alone(spark: SparkSession) -> None:
    """With other settings an active session is neither changed nor handed out."""
    with pytest.raises(SetupError, match="already active") as caught:
        session("spark", cores=2, extra={"spark.sql.ansi.enabled": "false"})
    assert "Stop it first" in caught.value.hint
    assert spark.range(1).count() == 1


def test_found_from_another_thread(spark: SparkSession) -> None:
    """Spark's active session is per thread; a widget's thread gets the same one all the same."""
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(session, "spark", cores=2).result()
    assert found.sparkContext is spark.sparkContext
    assert found.range(1).count() == 1


def test_a_java_without_delta(spark: SparkSession) -> None:
    """A session over a Java that another session has started without our jars is refused, as Delta would fail later."""
    _require_class("io.delta.sql.DeltaSparkSessionExtension")
    with pytest.raises(SetupError, match=r"a Java without io\.delta\.Missing\.") as caught:
        _require_class("io.delta.Missing")
    assert "Restart" in caught.value.hint


def test_times_are_utc(spark: SparkSession) -> None:
    """A timestamp has the same text on every machine."""
    assert spark.range(1).select(F.timestamp_seconds(F.lit(0)).cast("string")).first() == ("1970-01-01 00:00:00",)


def test_delta_writes_merges_and_tells_changes(spark: SparkSession, tmp_path: Path) -> None:
    """The session knows Delta: write, SQL MERGE, change data feed."""
    path = str(tmp_path / "table")
    spark.range(2).write.format("delta").option("delta.enableChangeDataFeed", "true").save(path)
    spark.sql(
        f"merge into delta.`{path}` t using (select * from range(1, 4)) s on t.id = s.id when not matched then insert *"
    )
    assert sorted(spark.read.format("delta").load(path).collect()) == [(0,), (1,), (2,), (3,)]
    changes = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 1).load(path)
    assert sorted(changes.select("id", "_change_type").collect()) == [(2, "insert"), (3, "insert")]


QUICKER = {"SPARK_SUBMIT_OPTS": f"-XX:TieredStopAtLevel=1 {UNVERIFIED}"}
"""A JVM as people have it, except for the compiler that takes half of the CPU time of so short a run."""


def test_quiet_offline_and_clean_in_a_fresh_process(spark: SparkSession, tmp_path: Path) -> None:
    """What a cluster user has set is overridden for the local session, nothing is fetched, printed or left behind.

    Workers find modules where the driver does, as beside a notebook that has put a folder on its path.
    """
    own = tmp_path / "own"
    own.mkdir()
    (own / "only_here.py").touch()
    no_network = tmp_path / "ivysettings.xml"
    no_network.write_text("<ivysettings/>")
    cwd = tmp_path / "cwd"
    cwd.mkdir()
    misleading = {
        "PYSPARK_PYTHON": "/usr/bin/python2",
        "SPARK_HOME": "/nowhere",
        "SPARK_CONF_DIR": "/nowhere",
        "TICDC_LAB_IVY_SETTINGS": str(no_network),
    }
    done = subprocess.run(
        [sys.executable, "-c", FRESH_PROCESS, str(tmp_path / "table"), str(own)],
        cwd=cwd,
        env=os.environ | misleading | QUICKER,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"n": 3, "worker": sys.executable}
    assert done.stderr == (
        f"PYSPARK_PYTHON=/usr/bin/python2 is not this Python; the local workers use {sys.executable}\n"
    )
    assert list(cwd.iterdir()) == []


def test_an_unstartable_jvm_is_one_sentence() -> None:
    """When Java itself gives up, its own reason is in the sentence."""
    code = "from ticdc_lab import session; session('spark', driver_memory='1000t')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    last = done.stderr.strip().splitlines()[-3:]
    assert last[0].startswith("ticdc_lab.errors.SetupError: Java did not start Spark: ")
    assert "heap" in last[0]


def test_workers_of_a_local_spark_are_fit(spark: SparkSession) -> None:
    """The local session's workers run this Python and find the package."""
    require_workers(spark)


def test_workers_with_another_python(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python of another minor version in the workers is a sentence instead of a stack trace."""
    monkeypatch.setattr(spark.sparkContext, "pythonVer", "3.8")
    with pytest.raises(SetupError, match=r"workers run Python .* but the driver runs") as caught:
        require_workers(spark)
    assert "PYSPARK_PYTHON" in caught.value.hint


def test_workers_without_python(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python that is not on the workers is named."""
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "/nowhere/python3")
    with pytest.raises(SetupError, match=r"no Python at /nowhere/python3\."):
        require_workers(spark)


def test_load_tries_the_workers_of_a_session_of_the_callers_own(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user meets the sentence at the first load, not a stack trace at the first action."""
    monkeypatch.setattr(workers, "made_here", lambda session: False)
    monkeypatch.setattr(workers, "_FIT", set())
    monkeypatch.setattr(spark.sparkContext, "pythonVer", "3.8")
    sample = PACKAGE.parent / "data/messages_canal-json-tidb_small.jsonl.gz"
    with pytest.raises(SetupError, match="workers run Python"):
        load(spark, str(sample))


def test_arrow_checks_are_off_in_the_jvm(spark: SparkSession) -> None:
    """Without these options decoding costs more than twice the JVM time, so they may not get lost."""
    assert ARROW_OPTIONS in spark.conf.get("spark.driver.extraJavaOptions")


@pytest.mark.parametrize(("size", "brief"), [(1 << 20, True), (1 << 30, False), (0, False)])
def test_a_small_log_has_a_brief_jvm(monkeypatch: pytest.MonkeyPatch, size: int, brief: bool) -> None:
    """A command about a small log of this machine ends before a JVM's optimising compiler has paid; no other does."""
    asked: dict[str, Any] = {}
    monkeypatch.setattr(choosing, "size_bytes", lambda _: size)
    monkeypatch.setattr(engine_room, "session", lambda *_, **given: asked.update(given))
    monkeypatch.setattr(engine_room, "has_jvm", lambda _: False)  # of a session that is not started here
    with click.Context(click.Command("audit")) as context:
        context.meta["ticdc_lab.engine"] = "spark"
        common.session_of("a.jsonl")
    assert asked["brief"] is brief
    settings = classic._settings(
        "a", "1g", 1, brief, {"spark.jars": "", "spark.driver.extraJavaOptions": "-Da=b"}, Path("java")
    )
    assert ("TieredStopAtLevel=1" in settings["spark.driver.extraJavaOptions"]) is brief
    assert "-Da=b" in settings["spark.driver.extraJavaOptions"]


@pytest.mark.parametrize("place", ["extra", "default", *JAVA_READS])
@pytest.mark.parametrize("brief", [True, False])
def test_a_caller_may_name_another_collector(monkeypatch: pytest.MonkeyPatch, place: str, brief: bool) -> None:
    """Java does not start with two, wherever the other is named; where none is there is ours, and all else stays."""
    for name in JAVA_READS:
        monkeypatch.delenv(name, raising=False)

    def told(theirs: str) -> str:
        named = {"extra": "spark.driver.extraJavaOptions", "default": "spark.driver.defaultJavaOptions"}.get(place)
        extra = {"spark.jars": ""} | ({named: theirs} if named else {})
        return classic._settings("a", "1g", 1, brief, extra, Path("java"))["spark.driver.extraJavaOptions"]

    collectors = re.compile(r"-XX:\+Use\w+GC\b")
    assert len(collectors.findall(told("-Da=b"))) == 1
    if place in JAVA_READS:
        monkeypatch.setenv(place, "-Da=b -XX:+UseG1GC")
    given = told("-Da=b -XX:+UseG1GC")
    assert collectors.findall(given) == (["-XX:+UseG1GC"] if place == "extra" else [])
    assert ("ReservedCodeCacheSize" in given) is brief


@pytest.mark.parametrize(
    ("master", "plain"),
    [(None, True), ("local", True), ("local[2]", True), ("spark://h:7077", False), ("local-cluster[2,1,900]", False)],
)
def test_only_one_process_hands_rows_to_itself_without_sums(
    monkeypatch: pytest.MonkeyPatch, master: str | None, plain: bool
) -> None:
    """Between machines blocks are compressed and their sums checked, and no pause may be long, as Spark has it."""
    for name in JAVA_READS:
        monkeypatch.delenv(name, raising=False)
    extra = {"spark.jars": ""} | ({"spark.master": master} if master else {})
    told = classic._settings("a", "1g", 1, False, extra, Path("java"))
    ours = {name: told.get(name) for name in classic._SHUFFLED_HERE}
    assert ours == (classic._SHUFFLED_HERE if plain else dict.fromkeys(classic._SHUFFLED_HERE))
    assert (classic.COLLECTOR in told["spark.driver.extraJavaOptions"]) is plain
