"""What engines throw is reported in a sentence, with a hint; no trace reaches who asked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from conftest import golden
from engines import session_of, using
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PythonException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ticdc_lab.cli import main
from ticdc_lab.engine import embedded, sessions
from ticdc_lab.engine.failures import engine_errors, in_our_words, in_words
from ticdc_lab.engine.paths import stored_parquet
from ticdc_lab.errors import EngineError, ProtocolError, SourceError
from ticdc_lab.sources.kafka import said_plainly, topics_of

WORKER = """
An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "ticdc_lab/sources/stored.py", line 1, in decode
    raise ProtocolError("no", hint="take avro")
"""


@pytest.mark.parametrize("engine", ["embedded", "spark"])
def test_a_question_that_an_engine_refuses(engine: str) -> None:
    """A missing column, and a function that fails in a worker: one line each, whichever engine reports it."""
    with using(engine):
        spark = session_of(engine)
        with pytest.raises(EngineError, match="refuses the question") as refused, engine_errors():
            spark.range(1).select("nothing").collect()
        assert "Hint:" in str(refused.value) and "Traceback" not in str(refused.value)
        assert "\n" not in refused.value.message and "SQLSTATE" not in refused.value.message

        def broken(batches: object) -> object:
            raise ZeroDivisionError("planted")

        with pytest.raises(EngineError, match="ZeroDivisionError: planted") as failed, engine_errors():
            spark.range(1).mapInArrow(broken, "id bigint").collect()  # type: ignore[arg-type]
        assert "\n" not in failed.value.message


@pytest.mark.parametrize("engine", ["embedded", "spark"])
def test_an_error_of_ours_comes_out_of_a_worker_as_it_was(engine: str) -> None:
    """With its class, its message and its hint."""

    def broken(batches: object) -> object:
        raise ProtocolError("The bytes are no avro.", hint="Say which protocol it is.")

    with using(engine), pytest.raises(ProtocolError) as told, engine_errors():
        session_of(engine).range(1).mapInArrow(broken, "id bigint").collect()  # type: ignore[arg-type]
    assert (told.value.message, told.value.hint) == ("The bytes are no avro.", "Say which protocol it is.")


def test_what_is_wrong_with_the_machine() -> None:
    """Memory, a full disk, an engine that has ended."""
    for said, words in (
        ("java.lang.OutOfMemoryError: Java heap space", "not enough memory"),
        ("java.io.IOException: No space left on device", "disk is full"),
        ("Answer from Java side is empty", "has ended"),
    ):
        ours = in_our_words(Py4JNetworkError(said))
        assert isinstance(ours, EngineError) and words in ours.message and ours.hint
    assert in_our_words(PythonException(f"{WORKER}ValueError: x")) is not None


def test_other_exceptions_are_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """A defect of a notebook's own stays one; an engine's exception is reported there in words."""
    assert in_our_words(KeyError("x")) is None
    with pytest.raises(KeyError), engine_errors():
        raise KeyError("x")
    with in_words():
        session_of("embedded").range(1).select(F.col("nothing")).collect()
    assert "refuses the question" in capsys.readouterr().out


def test_a_connection_that_an_engine_has_lost_is_its_end() -> None:
    """Once Java is killed its gateway meets errors of the system's; such errors of others are left alone."""
    lost = "raise ConnectionRefusedError(111, 'Connection refused')"
    with pytest.raises(EngineError, match="has ended in the middle of its work"), engine_errors():
        exec(lost, {"__name__": "py4j.clientserver"})
    with pytest.raises(ConnectionRefusedError), engine_errors():
        exec(lost, {"__name__": "requests.adapters"})


def test_a_connection_to_the_engine_that_is_lost_is_none_to_a_broker() -> None:
    """Kafka's clients run in the engine: that it is gone reports nothing of a broker."""
    topics = topics_of("kafka://127.0.0.1:9/t")
    with pytest.raises(ConnectionRefusedError), said_plainly(topics):
        raise ConnectionRefusedError(111, "Connection refused")
    with pytest.raises(SourceError, match="does not answer"), said_plainly(topics):
        raise RuntimeError("java.net.ConnectException: Connection refused")


LOGGED = """
import logging
from ticdc_lab.engine.classic import quiet_gateway
quiet_gateway()
try:
    1 / 0
except ZeroDivisionError:
    logging.exception("Exception while sending command.")
    logging.getLogger("py4j.clientserver").warning("There was an exception", exc_info=True)
logging.warning("kept")
"""


def test_a_gateway_that_fails_logs_no_trace() -> None:
    """py4j would, by the root's logger too, as soon as a JVM has ended; what others log stays."""
    done = subprocess.run([sys.executable, "-c", LOGGED], capture_output=True, text=True, check=True)
    assert done.stderr == "WARNING:root:kept\n"


def test_files_that_are_gone_are_an_error(tmp_path: Path) -> None:
    """The embedded engine by itself reads nothing from them, and reports it nowhere."""
    with pytest.raises(SourceError, match="not there any more"):
        stored_parquet(session_of("embedded"), str(tmp_path / "gone"))


def test_a_command_whose_engine_dies_says_what_to_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed in the midst of decoding: exit 2, one sentence, a hint to Spark, no trace, no answer."""
    process = embedded.start(cores=1)
    spark = embedded.connect(process, {"spark.sql.session.timeZone": "UTC"})
    monkeypatch.setitem(sessions._facts, spark, sessions._Facts(True, 1, process.name, process))

    def dies(*_: object) -> None:
        os.kill(process.pid, signal.SIGKILL)
        spark.range(3).count()

    monkeypatch.setattr("ticdc_lab.cli.common.say_counts", dies)
    try:
        told = CliRunner().invoke(main, ["watermarks", str(golden("messages_simple_small.jsonl.gz"))], obj=spark)
    finally:
        with using("embedded"):
            spark.stop()
            type(spark)._set_default_and_active_session(session_of("embedded"))  # type: ignore[attr-defined]
    assert told.exit_code == 2 and told.stdout == ""
    assert "has ended in the middle of its work" in told.stderr and "--engine spark" in told.stderr
    assert "Traceback" not in told.stderr


def test_a_worker_that_was_killed_is_said(classic: SparkSession, capfd: pytest.CaptureFixture[str]) -> None:
    """Neither as a refused question nor as an error of ours to report, and no trace is on the terminal."""

    def killed(batches: object) -> object:
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(EngineError, match="A Python worker of the engine has ended") as said, engine_errors():
        classic.range(1).mapInArrow(killed, "id bigint").collect()  # type: ignore[arg-type]
    assert "Run the same command again" in said.value.hint
    assert "\tat " not in "".join(capfd.readouterr())
