"""One session for one process, on either engine; and what can be asked of any session without knowing which runs."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from ticdc_lab.engine import embedded
from ticdc_lab.engine.choosing import EngineChoice, choose, too_large_to_sort
from ticdc_lab.engine.environment import MADE_HERE, SESSION_SETTINGS, UTC, memory_bytes, whole_memory_bytes
from ticdc_lab.engine.memory import cores_for, heap_for, require_heap, require_room
from ticdc_lab.errors import EngineError, SetupError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    _Session = SparkSession
else:
    _Session = object

INTERPRETED_EVENTS = 20_000
"""Events of a log for whose queries Spark compiles nothing."""

_INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
_CONNECT = "pyspark.sql.connect"
_LOCK = threading.RLock()
_ANSWERS_S = 10
_STOP = "Stop it first (session.stop()), or work in another process; in a notebook restart the kernel."


@dataclass(frozen=True, slots=True)
class _SessionRequest:
    app_name: str = "ticdc_lab"
    driver_memory: str = ""
    cores: str = "*"
    extra: tuple[tuple[str, str], ...] = ()


class Later(_Session):
    """The embedded engine's session of this process: the engine starts when something of a session is first asked.

    What a log was decoded to lies in files, from which most answers are made without an engine.
    """

    def __init__(self, cores: int, extra: Mapping[str, str]) -> None:
        self.cores, self._extra = cores, extra
        self._begun: SparkSession | None = None
        self._starting: Future[embedded.SailProcess] | None = None
        self._is_stopped = False
        self._handlers: list[Any] = []
        self._lock = threading.RLock()
        embedded.be_no_doctest()
        os.environ[embedded.CONNECT_MODE] = "1"  # expressions are made before it starts

    @property
    def begun(self) -> SparkSession | None:
        """The session, if its engine has started."""
        return self._begun

    @property
    def is_wanted(self) -> bool:
        """Whether its engine has started, or is starting."""
        return self._begun is not None or self._starting is not None

    def start_beside(self) -> None:
        """Let its engine start beside what this process does next; :meth:`begin` raises what keeps it from that."""
        pool = ThreadPoolExecutor(1)
        with self._lock:
            if self._begun is None and self._starting is None:
                self._starting = pool.submit(embedded.start, cores=self.cores)
        pool.shutdown(wait=False)

    def begin(self) -> SparkSession:
        """The session, whose engine runs then."""
        with self._lock:
            if self._begun is None:
                if self._is_stopped:
                    raise EngineError(
                        "The session of the embedded engine was stopped.", hint="Call ticdc_lab.session() again."
                    )
                self._begun = _embedded(self.cores, self._extra, self._starting)
                for heard in self._handlers:
                    self._begun.registerProgressHandler(heard)
            return self._begun

    def stop(self) -> None:
        """End it."""
        with self._lock:
            self._is_stopped = True
            if self._begun is not None:
                self._begun.stop()
                return
            os.environ.pop(embedded.CONNECT_MODE, None)
            if self._starting is not None and self._starting.exception() is None:
                self._starting.result().stop()

    @property
    def is_stopped(self) -> bool:
        """Whether it was stopped, or its engine has ended."""
        return self._is_stopped if self._begun is None else _stopped(self._begun)

    def registerProgressHandler(self, heard: Any) -> None:
        """Report progress, once something runs."""
        with self._lock:
            self._handlers.append(heard)
            if self._begun is not None:
                self._begun.registerProgressHandler(heard)

    def removeProgressHandler(self, heard: Any) -> None:
        """Undo that."""
        with self._lock:
            self._handlers.remove(heard)
            if self._begun is not None:
                self._begun.removeProgressHandler(heard)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # who displays, copies or inspects it asks for some of these, and no engine for that
            raise AttributeError(name)
        return getattr(self.begin(), name)


@dataclass(slots=True)
class _Active:
    """The session of this process that :func:`session` has made."""

    session: SparkSession
    engine: str
    asked: _SessionRequest
    brief: bool = False


@dataclass(frozen=True, slots=True)
class _Facts:
    """What is asked of a Connect server once a session."""

    sail: bool
    cores: int
    name: str
    process: embedded.SailProcess | None = None


_active: _Active | None = None
_facts: WeakKeyDictionary[Any, _Facts] = WeakKeyDictionary()


def session(
    engine: str = "auto",
    *,
    source: str | None = None,
    needs_spark: str | None = None,
    app_name: str = "ticdc_lab",
    driver_memory: str = "",
    cores: int | str = "*",
    brief: bool = False,
    extra: Mapping[str, str] | None = None,
    at_once: bool = True,
) -> SparkSession:
    """Start an engine, or give the session that is there.

    A process has one session at a time, and so one engine. Who asks for the same again, or for nothing in particular,
    gets the same; with ``auto`` any session made here will do that can read the source.

    Parameters
    ----------
    engine
        ``embedded`` (Sail, without Java), ``spark`` (Apache Spark: local, or at ``SPARK_REMOTE``), or ``auto``: as
        :func:`choose` decides.
    source, needs_spark
        As for :func:`choose`.
    app_name
        Name of the Spark application.
    driver_memory
        Heap of Spark's JVM, as Spark writes it: ``4g``, ``900m``. By default 4 GB, or two fifths of the memory of this
        machine or container if that is less. Fixed when the process starts its first JVM.
    cores
        Number of cores, or ``*`` for all.
    brief
        The process answers about a small log and ends: a local Spark's JVM then compiles quickly instead of well, and
        what is asked of the decoded log is computed here.
    extra
        Spark settings that override a local Spark's; ``spark.driver.extraJavaOptions`` adds to them. With
        ``spark.jars`` among them, the package's own jars are neither fetched nor used.
    at_once
        False: an embedded engine starts when something first needs it (:class:`Later`).

    Returns
    -------
    SparkSession
        UTC session time zone, Delta, no web page, no progress bar, functions on this very Python.

    Raises
    ------
    SetupError
        The engine cannot run here, or another session is active in this process.
    """
    global _active
    asked = _SessionRequest(app_name, driver_memory, str(cores), tuple(sorted((extra or {}).items())))
    with _LOCK:
        choice = choose(source, engine=engine, needs_spark=needs_spark, settings=extra)
        active = _of_this_process()
        if active is not None and active is not _active:
            raise SetupError(f"Another session ({engine_of(active.session)}) is active in this process.", hint=_STOP)
        if active is not None:
            found = _again(active, choice, asked, engine)
        else:
            found = _begin(choice, app_name, driver_memory, cores, brief, extra or {})
            _active = _Active(found, choice.engine, asked, brief and not is_several_machines(found))
        return found.begin() if at_once and isinstance(found, Later) else found


def is_active() -> bool:
    """Whether this process has a session, ours or a foreign one."""
    return _of_this_process() is not None


def engine_of(of: SparkSession | DataFrame) -> str:
    """Name what computes a session's or a frame's answers.

    Parameters
    ----------
    of
        Any session, or any frame.

    Returns
    -------
    str
        ``embedded (Sail 0.7.2)``, ``Apache Spark 4.2.0, local[2]`` or ``Spark Connect at host:15002``.
    """
    spark = of if isinstance(of, Later) or not hasattr(of, "sparkSession") else of.sparkSession
    if _is_connect(spark):
        return _asked_once(spark).name
    return f"Apache Spark {spark.version}, {spark.sparkContext.master}"


def is_sail(spark: SparkSession) -> bool:
    """Whether the session's engine is Sail; asked of a server once a session."""
    return _is_connect(spark) and _asked_once(spark).sail


def computes_here(spark: SparkSession) -> bool:
    """Whether this process itself computes what it reads of a decoded log: beside the embedded engine, and beside a
    Spark of its own that is there for a small log, where each job takes longer than the answer.
    """
    return is_sail(spark) or (_active is not None and _active.session is spark and _active.brief)


def require_room_to_sort(spark: SparkSession, size: int) -> None:
    """Refuse to sort messages of about so many bytes, for a new topic, beyond the memory of the embedded engine.

    Raises SetupError: the system would end it in the middle of the work.
    """
    if is_sail(spark) and (why := too_large_to_sort(size)) is not None:
        raise SetupError(f"The embedded engine cannot be used: {why}.", hint=embedded.USE_SPARK)


def require_room_for(spark: SparkSession, question: str, *, size: int, rows: int) -> None:
    """:func:`ticdc_lab.engine.memory.require_room` if the embedded engine, and this process, would answer."""
    if is_sail(spark):
        require_room(question, size=size, rows=rows)


def made_here(spark: SparkSession) -> bool:
    """Whether its functions run in the Python and with the files of this machine: :func:`session` made it here."""
    if isinstance(spark, Later) or sail_process_of(spark) is not None:
        return True
    return has_jvm(spark) and spark.conf.get(MADE_HERE, "") != ""


def has_jvm(spark: SparkSession) -> bool:
    """Whether the session is classic Spark, with a JVM of this process's own."""
    return not _is_connect(spark)


def sail_process_of(spark: SparkSession) -> embedded.SailProcess | None:
    """The process of an embedded session whose engine has started; None of any other."""
    begun = spark.begun if isinstance(spark, Later) else spark
    found = None if begun is None else _facts.get(begun)
    return None if found is None else found.process


def start_beside(spark: SparkSession) -> None:
    """Let an embedded engine that has not started do so beside the next work of this process."""
    if isinstance(spark, Later):
        spark.start_beside()


def is_wanted(spark: SparkSession) -> bool:
    """Whether a session's engine runs, or starts: an embedded one may wait until something of it is asked."""
    return not isinstance(spark, Later) or spark.is_wanted


def parallelism(spark: SparkSession) -> int:
    """How many tasks compute at the same time."""
    return _asked_once(spark).cores if _is_connect(spark) else spark.sparkContext.defaultParallelism


def is_several_machines(spark: SparkSession) -> bool:
    """Whether functions may run on another machine than this one, with other files."""
    if _is_connect(spark):
        return not isinstance(spark, Later) and sail_process_of(spark) is None
    return not str(spark.sparkContext.master).startswith("local")  # `local-cluster` has several processes here


@contextmanager
def interpreted(spark: SparkSession, events: int | None) -> Iterator[None]:
    """Let Spark compile nothing for many different queries over a log of so few events.

    A Delta target of 2,289 events and 17 DDL takes 88 CPU seconds so, 111 with compiled code, and what is compiled for
    a table of 250 columns is beyond a class. The settings are the caller's own again afterwards; Sail, a cluster and a
    log of an unknown size are left as they are.
    """
    few = events is not None and events <= INTERPRETED_EVENTS and not _is_connect(spark)
    settings = _INTERPRETED if few and not is_several_machines(spark) else {}
    before = {name: str(spark.conf.get(name)) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, was in before.items():
            spark.conf.set(name, was)


def _is_connect(spark: SparkSession) -> bool:
    return isinstance(spark, Later) or type(spark).__module__.startswith(_CONNECT)


def _asked_once(spark: SparkSession) -> _Facts:
    if isinstance(spark, Later):
        return _Facts(True, spark.cores, embedded.name())
    found = _facts.get(spark)
    if found is None:
        found = _facts[spark] = _ask(spark)
    return found


def _ask(spark: SparkSession) -> _Facts:
    """A server that does not name its master is no Spark: its rows are brought together as on Sail, right on any."""
    from pyspark.sql import functions as F

    master = spark.conf.get("spark.master", "") or ""
    parts = spark.range(1 << 16).select(F.spark_partition_id().alias("p")).agg(F.max("p")).head()
    assert parts is not None
    return _Facts(master == "", int(parts[0]) + 1, f"Spark Connect at {spark.client.host}")


def _again(active: _Active, choice: EngineChoice, asked: _SessionRequest, engine: str) -> SparkSession:
    same = asked in (active.asked, _SessionRequest())
    if (
        not same
        or (engine != "auto" and engine != active.engine)
        or (choice.engine, active.engine)
        == (
            "spark",
            "embedded",
        )
    ):
        wanted = (
            "with other settings than those asked for" if not same else f"but {choice.engine} is needed: {choice.why}"
        )
        raise SetupError(
            f"A session ({engine_of(active.session)}) is already active in this process, {wanted}.", hint=_STOP
        )
    return active.session


def _of_this_process() -> _Active | None:
    """The active session: ours, or a foreign one, which is then no :data:`_active`."""
    global _active
    if _active is not None and _stopped(_active.session):
        _active = None
    if _active is not None:
        return _active
    for module, name in ((f"{_CONNECT}.session", "SparkSession"), ("pyspark.sql.session", "SparkSession")):
        if module in sys.modules and (found := _default(getattr(sys.modules[module], name))) is not None:
            return _Active(found, "", _SessionRequest())
    return None


def _default(kind: Any) -> SparkSession | None:
    if kind.__module__.startswith(_CONNECT):
        return kind.getActiveSession() or kind._get_default_session()  # type: ignore[no-any-return]
    found = kind._instantiatedSession
    return None if found is None or _stopped(found) else found


def _stopped(spark: SparkSession) -> bool:
    if isinstance(spark, Later):
        return spark.is_stopped
    if _is_connect(spark):
        process = sail_process_of(spark)
        if process is not None and process.ended:
            spark.stop()
        return bool(spark.is_stopped)  # type: ignore[attr-defined]
    return spark.sparkContext._jsc is None or bool(spark.sparkContext._jsc.sc().isStopped())


def _begin(
    choice: EngineChoice, app_name: str, driver_memory: str, cores: int | str, brief: bool, extra: Mapping[str, str]
) -> SparkSession:
    if choice.engine == "embedded":
        return Later(cores_for(memory_bytes()) if cores == "*" else int(cores), extra)
    os.environ.pop(embedded.CONNECT_MODE, None)  # of a process that had started this one
    if remote := os.environ.get("SPARK_REMOTE") or extra.get("spark.remote"):
        return _connected(remote, extra)
    from ticdc_lab.engine.classic import local_spark

    if driver_memory:
        require_heap(driver_memory, memory_bytes(), whole_memory_bytes())
    driver_memory = driver_memory or heap_for(memory_bytes())
    return local_spark(app_name=app_name, driver_memory=driver_memory, cores=cores, brief=brief, extra=extra)


def _embedded(
    cores: int, extra: Mapping[str, str], starting: Future[embedded.SailProcess] | None = None
) -> SparkSession:  # fmt: skip
    process = embedded.start(cores=cores) if starting is None else starting.result()
    begun = embedded.connect(process, _with_sql(SESSION_SETTINGS, extra))
    _facts[begun] = _Facts(True, cores, process.name, process)
    return begun


def _connected(remote: str, extra: Mapping[str, str]) -> SparkSession:
    embedded.be_no_doctest()
    from pyspark.sql import SparkSession

    _require_answer(remote)
    begun = SparkSession.builder.remote(remote).getOrCreate()
    for name, value in _with_sql(UTC, extra).items():
        begun.conf.set(name, value)
    return begun


def _with_sql(settings: Mapping[str, str], extra: Mapping[str, str]) -> dict[str, str]:
    """The same, and what a session can be set once its engine runs."""
    return dict(settings) | {k: v for k, v in extra.items() if k.startswith("spark.sql.")}


def _require_answer(remote: str) -> None:
    """Something takes connections where Spark should be: its client would try for ten minutes without a word."""
    try:
        place = urlsplit(remote)
        where = place.hostname or "", place.port or 15002
    except ValueError:
        where = "", 0
    if not remote.startswith("sc://"):
        return  # a master, whose server the client starts
    if not where[0]:
        raise SetupError("SPARK_REMOTE is no address of Spark; expected sc://HOST[:PORT].")
    try:
        socket.create_connection(where, timeout=_ANSWERS_S).close()
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or error
        raise SetupError(
            f"No Spark answers at SPARK_REMOTE (sc://{where[0]}:{where[1]}): {why}.",
            hint="Start it, or unset SPARK_REMOTE to use an engine of this machine.",
        ) from None
