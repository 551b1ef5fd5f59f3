"""What runs in Spark for a while: how far it is, how long it takes, and how to stop it.

The command line (:func:`shown`) and the widgets show the same numbers, from :func:`watched`.
"""

from __future__ import annotations

import ctypes
import gc
import itertools
import os
import pickle
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from ticdc_lab.engine.giving_up import given_up, still_wanted
from ticdc_lab.engine.memory import GUARD
from ticdc_lab.errors import TiCDCLabError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


EVERY_S = 0.3
_STUCK_S = 60.0
"""So long a copy of this process may compute once its result is waited for."""
_DIE_WITH_PARENT = 1
_SHOWS = "progress"
_APART = (_SHOWS, GUARD)
"""Threads that do what a copy of this process never does."""
_KNOWN_AFTER_S = 1.0
_KNOWN_FROM = 0.03
"""The part that must be done before the rest is estimated."""

Result = TypeVar("Result")
Measured = Callable[[], tuple[int, int] | None]
"""How much is done, and the whole, in something finer than Spark's tasks; None while that is not known."""

_numbers = itertools.count()


class Cancelled(TiCDCLabError):
    """Work was stopped on request."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far work is."""

    what: str  # what is done, in words
    # In ``unit``; whole is None if unknown
    done: int = 0
    whole: int | None = None
    unit: str = "tasks"
    # Seconds; what is left is None if unknown
    elapsed_s: float = 0.0
    left_s: float | None = None

    @property
    def share(self) -> float | None:
        """The part that is done, 0 to 1; below 1 until it is over, as the whole may be an estimate."""
        return min(0.99, self.done / self.whole) if self.whole else None

    @property
    def words(self) -> str:
        """One line."""
        about = "about " if self.unit == "messages" else ""
        so_far = f"{self.done:,} of {about}{self.whole:,} {self.unit}, " if self.whole else ""
        left = "" if self.left_s is None else f", about {seconds(self.left_s)} left"
        return f"{self.what}: {so_far}{seconds(self.elapsed_s)}{left}"


def seconds(s: float) -> str:
    """A duration in words: ``3 s``, ``2 min 10 s``."""
    n = max(0, round(s))
    return f"{n} s" if n < 100 else f"{n // 60} min {n % 60} s"


@dataclass(slots=True)
class _Watch:
    """Reads the numbers of what runs."""

    what: str
    tasks: Tasks
    measured: Measured | None = None
    expected_s: float | None = None
    begun: float = field(default_factory=time.monotonic)
    first: tuple[float, int] | None = None
    """When something was measured first, and what: Spark takes a while to start, which shows nothing of the rest."""

    def now(self) -> Progress:
        elapsed = time.monotonic() - self.begun
        found = self.measured() if self.measured is not None else None
        unit = "tasks" if found is None else "messages"
        done, whole = found if found is not None else self.tasks()
        left = self._measured_left(elapsed, done, whole) if found is not None else None
        if left is None and self.expected_s is not None and self.expected_s > elapsed:
            left = self.expected_s - elapsed  # tasks give no estimate: their number grows
        return Progress(self.what, done, whole or None, unit, elapsed, left)

    def _measured_left(self, elapsed: float, done: int, whole: int) -> float | None:
        self.first = self.first or (elapsed, done)
        since, part = elapsed - self.first[0], done - self.first[1]
        if since < _KNOWN_AFTER_S or part < _KNOWN_FROM * whole:
            return None
        return since * max(0, whole - done) / part


@contextmanager
def watched(
    spark: SparkSession | None,
    what: str,
    said: Callable[[Progress], None],
    *,
    measured: Measured | None = None,
    expected_s: float | None = None,
    tag: str | None = None,
) -> Iterator[None]:
    """Report to ``said`` periodically, from a background thread, how far the body is.

    Parameters
    ----------
    spark
        The session whose jobs count; None where none works.
    what
        What is done, in words.
    said
        Takes each :class:`Progress`.
    measured
        Something finer than tasks, see :data:`Measured`.
    expected_s
        Seconds that it should take, until something is measured.
    tag
        The tag of the body's jobs; without one all active jobs count.
    """
    over = threading.Event()

    def poll(watch: _Watch) -> None:
        while not over.wait(EVERY_S):
            with suppress(Exception):  # the session may end meanwhile, and a report must not stop work
                said(watch.now())

    with nullcontext(lambda: (0, 0)) if spark is None else counted(spark, tag) as tasks:
        watch = _Watch(what, tasks, measured, expected_s)
        thread = threading.Thread(target=poll, args=(watch,), name=_SHOWS, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


@contextmanager
def shown(
    spark: SparkSession | None, what: str, *, measured: Measured | None = None
) -> Iterator[Callable[[str], None]]:  # fmt: skip
    """Show ``what`` and how far it is on stderr while the body runs; nothing unless it is a terminal.

    ``measured`` is as for :func:`watched`. The body gets a function of words, which follow it from then on.
    """
    if not sys.stderr.isatty():
        yield lambda words: None
        return
    from rich.console import Console  # here: most of what computes is no command
    from rich.text import Text

    added: list[str] = []
    with Console(stderr=True).status(Text(what)) as line:

        def say(progress: Progress) -> None:
            line.update(Text("; ".join([progress.words, *added])))

        def add(words: str) -> None:
            added[:] = [words]

        with watched(spark, what, say, measured=measured):
            yield add


class Running(Generic[Result]):
    """A function in a thread of its own: with progress, and stopped when asked.

    Parameters
    ----------
    spark
        The session it uses, or what gives it, which may take a while.
    what
        What is done, in words.
    work
        The function. Its Spark jobs carry a tag of their own, so only they are stopped. It stops between two jobs, or
        in one; what it does in Python alone runs until its next job.
    measured, expected_s
        As for :func:`watched`.
    said
        Takes each :class:`Progress`, in a thread of its own.
    after
        Called once at the end, in the thread of the work, with any outcome; :meth:`wait` waits for it too.

    Notes
    -----
    The session stays usable: other jobs in it are not touched.
    """

    def __init__(
        self, spark: SparkSession | Callable[[], SparkSession], what: str, work: Callable[[], Result], *,
        measured: Measured | None = None,
        expected_s: float | None = None, said: Callable[[Progress], None] | None = None,
        after: Callable[[Running[Result]], None] | None = None,
    ) -> None:  # fmt: skip
        self.tag = f"{TAG}{next(_numbers)}"
        self.progress = Progress(what, left_s=expected_s)
        self.error: BaseException | None = None
        self._session, self._work, self._said, self._after = spark, work, said, after
        self._spark: SparkSession | None = None
        self._how = (measured, expected_s)
        self._result: Result | None = None
        self._ended = False
        self._asked, self._over = threading.Event(), threading.Event()
        _in_thread(self._run, name=self.tag)

    @property
    def state(self) -> str:
        """``running``, ``done``, ``failed`` or ``cancelled``."""
        if not self._ended:
            return "running"
        return "done" if self.error is None else "cancelled" if isinstance(self.error, Cancelled) else "failed"

    def wait(self, timeout_s: float | None = None) -> Result:
        """What the function gave.

        Raises
        ------
        Cancelled
            It was stopped.
        TimeoutError
            It still runs after ``timeout_s``.
        """
        if not self._over.wait(timeout_s):
            raise TimeoutError(f"{self.progress.what} still runs after {timeout_s} s.")
        if self.error is not None:
            raise self.error
        return self._result  # type: ignore[return-value]

    def cancel(self) -> None:
        """Stop its jobs, and those it would start; returns at once, :meth:`wait` lasts until it is over."""
        if not self._asked.is_set() and not self._over.is_set():
            self._asked.set()
            _stop_jobs(self.tag, lambda: self._spark, self._over)

    def _run(self) -> None:
        try:
            self._result = self._watched(self._session() if callable(self._session) else self._session)
        except BaseException as error:
            self.error = error
        if self._asked.is_set():
            self.error = Cancelled(f"{self.progress.what} was stopped after {seconds(self.progress.elapsed_s)}.")
            self._result = None
        self._ended = True
        try:
            if self._after is not None:
                self._after(self)
        finally:
            self._over.set()

    def _watched(self, spark: SparkSession) -> Result:
        self._spark = spark
        measured, expected_s = self._how
        with (
            tagged(spark, self.tag, self.progress.what),
            watched(spark, self.progress.what, self._say, measured=measured, expected_s=expected_s, tag=self.tag),
        ):
            if self._asked.is_set():
                raise Cancelled("not begun")
            return self._work()

    def _say(self, progress: Progress) -> None:
        self.progress = progress
        if self._said is not None:
            self._said(progress)


@contextmanager
def jobs_given_up(spark: SparkSession) -> Iterator[None]:
    """Stop the jobs that the body starts once the computing around is given up (:mod:`ticdc_lab.engine.giving_up`).

    Raises
    ------
    GivenUpError
        It was, in place of Spark's words for a stopped job.
    """
    event = given_up()
    if event is None:
        yield
        return
    tag, over = f"{TAG}{next(_numbers)}", threading.Event()
    _stop_jobs(tag, lambda: spark if event.is_set() else None, over)
    try:
        with tagged(spark, tag):
            yield
    except Exception:
        still_wanted()
        raise
    finally:
        over.set()


def _stop_jobs(tag: str, of: Callable[[], SparkSession | None], over: threading.Event) -> None:
    """Stop the jobs with a tag until it is over: another may begin after one was stopped; None: not now."""

    def stop() -> None:
        while not over.wait(EVERY_S):
            if (spark := of()) is not None:
                stop_tagged(spark, tag)

    _in_thread(stop, name=f"{tag}-stop")


def _in_thread(work: Callable[[], None], *, name: str) -> None:
    """Run in a thread that has, in classic Spark, a thread of Java's to itself, where tags of jobs are kept."""
    from pyspark import InheritableThread
    from pyspark.sql import is_remote

    kind = threading.Thread if is_remote() else InheritableThread
    kind(target=work, name=name, daemon=True).start()


def may_fork(spark: SparkSession) -> bool:
    """Whether :func:`beside` can copy this process: no thread works in it that may hold a lock, and no engine.

    Nor where something else takes the end of its copies: SIGCHLD is ignored, or has a handler.
    """
    from ticdc_lab.engine.sessions import is_wanted

    if sys.platform != "linux" or signal.getsignal(signal.SIGCHLD) != signal.SIG_DFL:
        return False
    others = {t for t in threading.enumerate() if t is not threading.current_thread()}
    apart = {t for t in others if t.name in _APART or type(t).__module__ == "rich.live"}
    return others == apart and not is_wanted(spark)


@contextmanager
def beside(work: Callable[[], Result]) -> Iterator[Callable[[], Result]]:
    """Let a copy of this process do some work beside the body, which gets a function that gives the result, pickled.

    Python computes in one thread at a time, and imports in one. If the copy gives none, for an error or for want of
    memory, who asks does the work again, and gets the error where it belongs; also where the system makes no copy.
    """
    told, tell = os.pipe()
    copy = None
    with suppress(OSError):
        copy = os.fork()
    if copy == 0:
        os.close(told)
        _do_and_end(work, tell)
    os.close(tell)

    def result() -> Result:
        with suppress(EOFError, pickle.UnpicklingError):
            waiting = select.poll()
            waiting.register(told, select.POLLIN)
            if waiting.poll(_STUCK_S * 1_000):
                with os.fdopen(told, "rb", closefd=False) as all_of_it:
                    return pickle.load(all_of_it)  # type: ignore[no-any-return]
        return work()

    try:
        yield result
    finally:
        os.close(told)
        if copy is not None:
            os.kill(copy, signal.SIGKILL)
            os.waitpid(copy, 0)


def _do_and_end(work: Callable[[], Any], tell: int) -> NoReturn:
    """In the copy: it ends with the work, with the process that made it or with an interrupt, and prints nothing."""
    try:
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
        gc.freeze()  # what is there stays where the other process has it, too
        with os.fdopen(tell, "wb") as out:
            out.write(pickle.dumps(work(), pickle.HIGHEST_PROTOCOL))
    finally:
        os._exit(0)


# What an engine computes at the moment: identified by a tag, counted in tasks, and stopped.

TAG = "ticdc_lab-"
Tasks = Callable[[], tuple[int, int]]
"""How many tasks are done, and how many there are; none if the engine does not report it."""


@contextmanager
def tagged(spark: SparkSession, tag: str, what: str = "") -> Iterator[None]:
    """Give what this thread starts in the body a tag, by which it is counted and stopped.

    Parameters
    ----------
    spark
        Any session.
    tag
        Begins with :data:`TAG`.
    what
        In words, for Spark's own pages; with them the tag replaces the tags of the work that began this one.
    """
    if not _has_jvm(spark):
        spark.addTag(tag)
        try:
            yield
        finally:
            spark.removeTag(tag)
        return
    context = spark.sparkContext
    if what:
        context.setJobGroup(tag, what, interruptOnCancel=True)
        for other in context.getJobTags():
            if other.startswith(TAG):
                context.removeJobTag(other)
    context.setInterruptOnCancel(True)
    context.addJobTag(tag)
    try:
        yield
    finally:
        context.removeJobTag(tag)


def _has_jvm(spark: SparkSession) -> bool:
    from ticdc_lab.engine.sessions import has_jvm  # a third of what ``--help`` imports, which has no session

    return has_jvm(spark)


def stop_tagged(spark: SparkSession, tag: str) -> None:
    """Stop what runs with a tag; what begins afterwards is not touched."""
    from ticdc_lab.engine.sessions import has_jvm, sail_process_of

    if has_jvm(spark):
        spark.sparkContext.cancelJobsWithTag(tag)
        return
    process = sail_process_of(spark)
    if process is None or process.calls is None:
        spark.interruptTag(tag)
    elif process.calls.has(tag):
        process.calls.cancel(tag, lambda: spark.interruptTag(tag))


@contextmanager
def counted(spark: SparkSession, tag: str | None) -> Iterator[Tasks]:
    """Give a function that reports the tasks of the jobs with a tag; of all without one."""
    if _has_jvm(spark):
        yield lambda: _tasks_of_stages(spark, tag)
        return
    latest: dict[str, tuple[int, int]] = {}

    def heard(stages: Sequence[Any] | None, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        if tag is None or tag in spark.getTags():  # called in the thread that waits for the job
            counts = [(s.num_completed_tasks, s.num_tasks) for s in stages or ()]
            latest[operation_id or ""] = (sum(n for n, _ in counts), sum(n for _, n in counts))
            if done:
                latest.pop(operation_id or "")

    spark.registerProgressHandler(heard)  # type: ignore[arg-type]
    try:
        yield lambda: (sum(n for n, _ in latest.values()), sum(n for _, n in latest.values()))
    finally:
        spark.removeProgressHandler(heard)  # type: ignore[arg-type]


def _tasks_of_stages(spark: SparkSession, tag: str | None) -> tuple[int, int]:
    tracker = spark.sparkContext.statusTracker()
    if tag is None:
        ids = set(tracker.getActiveStageIds())
    else:
        jobs = [tracker.getJobInfo(j) for j in tracker.getJobIdsForGroup(tag)]
        ids = {i for job in jobs if job is not None for i in job.stageIds}
    stages = [tracker.getStageInfo(i) for i in sorted(ids)]
    known = [(s.numCompletedTasks, s.numTasks) for s in stages if s is not None]
    return sum(n for n, _ in known), sum(n for _, n in known)
