"""Work in a thread of its own: how far it is, and that stopping it stops it and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest
from conftest import golden
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ticdc_lab import load
from ticdc_lab.engine.giving_up import GivenUpError, unless
from ticdc_lab.engine.running import Cancelled, Progress, Running, _Watch, jobs_given_up, watched

pytestmark = pytest.mark.spark

OPEN = str(golden("messages_open-protocol_small.jsonl.gz"))
LONG_S = 100_000
"""How long they sleep: work that is not stopped ends no test."""


def long_job(spark: SparkSession) -> int:
    """A day of sleep in each of two tasks, so that nothing but a stop ends it."""
    slow = F.java_method(F.lit("java.lang.Thread"), F.lit("sleep"), F.lit(LONG_S * 1000).cast("bigint"))
    return spark.range(0, 2, 1, 2).select(slow.alias("s")).where("s IS NULL OR s = 'x'").count()


def test_a_stop_stops_its_jobs_and_no_other(spark: SparkSession) -> None:
    """It ends long before the job would, reports it, and the session computes on."""
    seen: list[Progress] = []
    has_tasks = Event()

    def heard(progress: Progress) -> None:
        seen.append(progress)
        if progress.whole:
            has_tasks.set()

    running = Running(spark, "sleeping", lambda: long_job(spark), said=heard)
    has_tasks.wait()
    assert running.state == "running"
    running.cancel()
    with pytest.raises(Cancelled, match="sleeping was stopped after"):
        running.wait()
    assert running.state == "cancelled"
    assert seen[-1].done == 0 < 2 <= (seen[-1].whole or 0)
    assert seen[-1].unit == "tasks"
    assert spark.range(10).count() == 10
    assert not spark.sparkContext.getJobTags()


def test_the_second_job_of_stopped_work_does_not_begin(spark: SparkSession) -> None:
    """A stop between two jobs stops the next one."""
    at, stopped = threading.Event(), threading.Event()
    done: list[str] = []

    def work() -> None:
        spark.range(1).count()
        at.set()
        stopped.wait()
        long_job(spark)
        done.append("second")

    running = Running(spark, "two jobs", work)
    at.wait()
    running.cancel()
    stopped.set()
    with pytest.raises(Cancelled):
        running.wait()
    assert done == []


def test_jobs_of_computing_that_is_given_up_are_stopped(spark: SparkSession) -> None:
    """As of a panel whose figure no caller waits for any more; an error of its own stays what it is."""
    event, ends = threading.Event(), []

    def work(job: Callable[[], object]) -> None:
        try:
            with unless(event), jobs_given_up(spark):
                job()
        except (GivenUpError, ZeroDivisionError) as error:
            ends.append(type(error))

    at = threading.Event()
    thread = threading.Thread(target=work, args=(lambda: (at.set(), long_job(spark)),))
    thread.start()
    at.wait()
    work(lambda: 1 / 0)
    assert thread.is_alive()
    event.set()
    thread.join()
    assert ends == [ZeroDivisionError, GivenUpError]
    assert not spark.sparkContext.getJobTags()
    with jobs_given_up(spark):  # no one can give this up
        assert spark.range(3).count() == 3


def test_a_result_and_an_error_come_out_as_they_are(spark: SparkSession) -> None:
    """What comes after sees the end, and so does who waits."""
    ends: list[str] = []
    assert Running(spark, "adding", lambda: 1 + 1, after=lambda r: ends.append(r.state)).wait() == 2
    failing = Running(spark, "dividing", lambda: 1 / 0, after=lambda r: ends.append(r.state))
    with pytest.raises(ZeroDivisionError):
        failing.wait()
    assert ends == ["done", "failed"]
    goes_on = Event()
    waiting = Running(spark, "waiting", lambda: goes_on.wait())
    with pytest.raises(TimeoutError, match="still runs"):
        waiting.wait(0.01)
    goes_on.set()
    assert waiting.wait() is True


def test_what_is_left_is_told_from_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the expected time first, then from messages, without the time that Spark took to begin."""
    counts = iter([(0, 0), (100, 1000), (101, 1000), (300, 1000), (1100, 1000)])
    decoded = lambda: (c := next(counts)) and (c if c[0] else None)  # noqa: E731
    watch = _Watch("decoding", lambda: (0, 0), decoded, expected_s=50.0)

    def after(elapsed: float) -> Progress:
        monkeypatch.setattr("ticdc_lab.engine.running.time.monotonic", lambda: watch.begun + elapsed)
        return watch.now()

    assert after(4.0).left_s == pytest.approx(46.0)
    assert after(5.0).left_s == pytest.approx(45.0), "nothing measured yet but where it stood"
    assert after(5.2).left_s == pytest.approx(44.8), "one message says nothing"
    assert after(7.0).left_s == pytest.approx(2.0 * 700 / 200)
    over = after(12.0)
    assert over.left_s == 0.0
    assert over.share == 0.99, "an estimate was too low: it is over when it is over"


def test_words_of_progress() -> None:
    """What, how far, how long, how much longer; only what is known."""
    assert Progress("audit").words == "audit: 0 s"
    told = Progress("decoding", 1200, 5000, "messages", 130.0, 412.4)
    assert told.words == "decoding: 1,200 of about 5,000 messages, 2 min 10 s, about 6 min 52 s left"


def test_decoding_says_its_messages_and_leaves_nothing_behind(spark: SparkSession, tmp_path: Path) -> None:
    """The tasks show how many messages they have decoded; afterwards the folder holds the log alone."""
    folder = tmp_path / "decoded"
    log = load(spark, OPEN)
    done = log.messages_done(str(folder))
    seen: list[tuple[int, int]] = []

    def measured() -> tuple[int, int] | None:
        found = done()
        if found:
            seen.append(found)
        return found

    assert done() is None
    with watched(spark, "decoding", lambda _: None, measured=measured):
        log.materialise(str(folder), images=False)
    assert all(0 < n <= whole == 1470 for n, whole in seen)
    assert [p for p in folder.iterdir() if not p.name.startswith(("part-", "_facts-part-", "_arrivals-part-"))] == []
