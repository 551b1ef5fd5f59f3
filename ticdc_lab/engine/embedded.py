"""The embedded engine: Sail in a child process that is closed to other users, spoken to as to Spark Connect."""

from __future__ import annotations

import atexit
import json
import os
import pwd
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib.machinery import ModuleSpec
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ticdc_lab.engine.sail_process import SOCKET, STOP, forget
from ticdc_lab.engine.worker_daemon import OF_EACH_LOG
from ticdc_lab.errors import EngineError, SetupError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ticdc_lab.engine.channel import Calls


USE_SPARK = "Run it on Apache Spark: --engine spark, or in Python engine='spark'."
_PROCESS = Path(__file__).with_name("sail_process.py")
_LOG = "sail.log"
_END_S = 2.0
_TALKING = 2
"""Threads that are free to answer while Python functions hold one each."""
CONNECT_MODE = "SPARK_CONNECT_MODE_ENABLED"
_COMMENTS_DIFFER = "SET datafusion.execution.skip_physical_aggregate_schema_check = true"
"""Sail loses columns' comments in unions, and DataFusion would then take its own plan for a wrong one."""

_FOR_EVER_S = 10**9
_MEMORY = {"MIMALLOC_ALLOW_THP": "0", "MIMALLOC_PURGE_DELAY": "1000"}
"""How Sail's allocator asks the system for memory: in small pages, which it keeps for a second (ms).

As it does by itself it gives them back after 10 ms and is given huge ones, which the system clears and makes room for
each time: half of the CPU time of a large shuffle was the system's.
"""


@dataclass(slots=True)
class SailProcess:
    """A running engine."""

    process: subprocess.Popen[str]  # what carries the bytes; it ends when Sail ends
    folder: Path  # where its socket and its log are
    near: Path  # the same, or a link to it whose path is short enough for a socket
    pid: int  # of Sail, in which the Python functions run
    closed: bool  # whether only this user can reach it
    cores: int  # how many threads compute
    calls: Calls | None = None  # what runs on it; None before there is a session
    stopped: bool = False

    @property
    def name(self) -> str:
        """In words, with its version."""
        return name()

    @property
    def socket(self) -> Path:
        """Where it listens."""
        return self.near / SOCKET

    @property
    def ended(self) -> bool:
        """Whether it runs no more."""
        return self.process.poll() is not None

    def stop(self) -> None:
        """End it, with all that it has begun."""
        self.stopped = True
        assert self.process.stdin
        with suppress(BrokenPipeError):  # the last words to an ended engine are still to be written
            self.process.stdin.close()
        try:
            self.process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()  # Sail dies with it
            self.process.wait()
        forget(self.near)

    def stop_functions(self) -> None:
        """Raise ``KeyboardInterrupt`` in each Python function that is running in it, and wait until none does.

        One that is inside a compiled function or waits for the system gets it afterwards, and is not waited for long.
        """
        assert self.process.stdout
        self._say(STOP)
        self.process.stdout.readline()

    def prepare(self, *names: str) -> None:
        """Let it import modules beside this process's next work.

        One that cannot be imported is left, and its user gets the reason.
        """
        if not self.stopped:
            with suppress(BrokenPipeError):  # it has ended, which the next question reports
                self._say(*names)

    def _say(self, *lines: str) -> None:
        assert self.process.stdin
        self.process.stdin.writelines(f"{line}\n" for line in lines)
        self.process.stdin.flush()

    def require_alive(self) -> None:
        """Raise :class:`~ticdc_lab.errors.EngineError` if it has ended.

        Called when a connection broke, so an end that is under way is waited for.
        """
        try:
            status = self.process.wait(_END_S)
        except subprocess.TimeoutExpired:
            return
        if self.stopped:
            raise EngineError("The session of the embedded engine was stopped.", hint="Call ticdc_lab.session() again.")
        raise EngineError(
            f"The embedded engine has ended in the middle of its work ({_how(status)}).",
            hint=f"{USE_SPARK} Or try again with a new session: ticdc_lab.session().",
        )

    def unable_to(self, what: str) -> EngineError:
        """The error for what this engine does not implement."""
        return EngineError(f"The embedded engine cannot do this: {what}.", hint=USE_SPARK)


def missing() -> str | None:
    """What keeps the embedded engine from running here; None if nothing does."""
    from importlib.util import find_spec

    for module in ("pysail", "grpc", "grpc_status", "google.rpc", "pandas"):
        try:
            found = find_spec(module)
        except ModuleNotFoundError:
            found = None
        if found is None:
            return f"the module {module} is not installed"
    others = shared_with()
    if others is not None and (refusal := cannot_be_closed()) is not None:
        return f"{others}, and it cannot be closed to other users: {refusal}"
    return None


def cannot_be_closed() -> str | None:
    """Why no process here can have a network of its own; None if it can."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(_PROCESS), "probe"], capture_output=True, text=True, timeout=60, check=False
    )
    lines = done.stderr.strip().splitlines()
    return None if done.returncode == 0 else f"no network namespace ({lines[-1] if lines else 'no reason given'})"


@cache
def name() -> str:
    """The embedded engine in words, with its version."""
    return f"embedded (Sail {version('pysail')})"


def start(*, cores: int) -> SailProcess:
    """Start the engine, closed to other users.

    Raises SetupError: it cannot be closed, and other people work on this machine; or it does not start.
    """
    begun, said = _begin(cores=cores, closed=True)
    if "pid" not in said and (others := shared_with()) is None:
        begun, said = _begin(cores=cores, closed=False)
    elif "pid" not in said:
        raise SetupError(
            f"The embedded engine cannot be closed to other users here: {said.get('refused')}. Without that each of "
            f"them could run programs as you, and {others}.",
            hint=USE_SPARK,
        )
    if "pid" not in said:
        raise SetupError(f"The embedded engine does not start: {said.get('refused')}.", hint=USE_SPARK)
    return begun


def _begin(*, cores: int, closed: bool) -> tuple[SailProcess, dict[str, Any]]:
    folder = Path(tempfile.mkdtemp(prefix="ticdc_lab-"))
    near = _near(folder)
    command = [sys.executable, "-P", str(_PROCESS), str(near), "closed" if closed else "open"]
    with (folder / _LOG).open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True,
            env=_environment(folder, cores),
        )  # fmt: skip
    assert process.stdout
    line = process.stdout.readline()
    printed = (folder / _LOG).read_text(errors="replace").strip().splitlines() or ["it printed nothing"]
    said = json.loads(line) if line else {"refused": printed[-1]}
    begun = SailProcess(process, folder, near, int(said.get("pid", 0)), closed, cores)
    if "pid" in said:
        atexit.register(begun.stop)
        begun.prepare(*OF_EACH_LOG)  # a second of imports, beside this process's own
    else:
        begun.stop()
    return begun, said


def _near(folder: Path) -> Path:
    """A path of a folder in which a socket can be: long ones, as of a job's ``TMPDIR``, the system does not take."""
    if len(os.fsencode(folder / SOCKET)) <= _LONGEST:
        return folder
    link = Path(tempfile.mkdtemp(prefix="ticdc_lab-", dir="/tmp")) / "near"
    link.symlink_to(folder)
    return link


_LONGEST = 103
"""Bytes of a socket's path on every system: 103 on macOS, 107 on Linux."""


def _environment(folder: Path, cores: int) -> dict[str, str]:
    """Functions find their modules as here; a session lives as long as its process."""
    ours = {
        "PYTHONPATH": os.pathsep.join(p or os.getcwd() for p in sys.path),
        "SAIL_EXECUTION__DEFAULT_PARALLELISM": str(cores),
        "TOKIO_WORKER_THREADS": str(cores + _TALKING),
        "SAIL_SPARK__SESSION_TIMEOUT_SECS": str(_FOR_EVER_S),
        "RUST_LOG": os.environ.get("RUST_LOG", "warn"),
        "TMPDIR": str(folder),
        **_MEMORY,
    }
    return {k: v for k, v in os.environ.items() if k not in (CONNECT_MODE, "SPARK_REMOTE")} | ours


def connect(process: SailProcess, settings: Mapping[str, str]) -> SparkSession:
    """Open a session with these settings on a running engine; stopping it ends the engine."""
    be_no_doctest()
    with _without_ipython():
        from pyspark.sql.connect.session import SparkSession as ConnectSession

    from ticdc_lab.engine.channel import Calls, Closed, WhileAlive

    process.calls = Calls(process)
    session = ConnectSession(connection=Closed(process, process.calls))  # type: ignore[arg-type]
    session.client.set_retry_policies([WhileAlive(process)])
    ConnectSession._set_default_and_active_session(session)
    os.environ[CONNECT_MODE] = "1"
    for name, value in settings.items():
        session.conf.set(name, value)
    session.sql(_COMMENTS_DIFFER)  # a command: run at once
    stop = session.stop

    def stop_all() -> None:
        if not process.stopped:
            session.release_session_on_close = not process.ended
            stop()
            os.environ.pop(CONNECT_MODE, None)
            process.stop()

    session.stop = stop_all  # type: ignore[method-assign]
    session._parse_ddl = cache(session._parse_ddl)  # type: ignore[method-assign]  # each kernel's form, each time
    return session  # type: ignore[return-value]


@contextmanager
def _without_ipython() -> Iterator[None]:
    """Keep PySpark's progress bar, which is not shown, from importing IPython to learn how wide a terminal is."""
    if "IPython" in sys.modules:
        yield
        return
    sys.modules["IPython"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules["IPython"]


def be_no_doctest() -> None:
    """Keep PySpark from taking ``python -c`` for a run of its own tests, for which it wants all of Spark installed."""
    main = sys.modules["__main__"]
    if getattr(main, "__spec__", None) is None and not hasattr(main, "__file__"):  # none at all after IPython's %reset
        main.__spec__ = ModuleSpec("__main__", None)


def _how(status: int) -> str:
    return f"killed by signal {status - 128}" if status > 128 else f"status {status}"


# Whether other people work on this machine, who could reach a port that is open on it.

_UTMP = (Path("/run/utmp"), Path("/var/run/utmp"))
_RECORD = struct.Struct("<h2xi32s4s32s256s76x")
_LOGGED_IN = 7
_HUMAN = range(1000, 60000) if sys.platform != "darwin" else range(501, 60000)
"""User ids that systems give to people and not to their own services."""


def shared_with(
    environ: Mapping[str, str] | None = None, utmp: Path | None = None, processes: Path = Path("/proc")
) -> str | None:
    """Why this machine counts as shared with other people; None if only its one user works on it.

    ``environ``: environment variables, by default this process's. ``utmp``: the system's file of who is logged
    in, by default where it usually is. ``processes``: a folder with one folder for each process, as ``/proc``. Returns:
    a clause such as ``'ada' is logged in too``.
    """
    if hub := sorted(name for name in (os.environ if environ is None else environ) if name.startswith("JUPYTERHUB_")):
        return f"JupyterHub runs here ({hub[0]} is set)"
    own = _name(os.getuid())
    file = utmp or next((f for f in _UTMP if f.exists()), None)
    if others := sorted(set(_logged_in(file)) - {own}):
        return f"{others[0]!r} is logged in too"
    if users := sorted(set(_users(processes)) & set(_HUMAN) - {os.getuid()}):
        return f"processes of {_name(users[0])!r} run on it"
    return None


def _logged_in(utmp: Path | None) -> Iterator[str]:
    with suppress(OSError):
        data = utmp.read_bytes() if utmp else b""
        for kind, _, _, _, user, _ in _RECORD.iter_unpack(data[: len(data) - len(data) % _RECORD.size]):
            if kind == _LOGGED_IN:
                yield user.split(b"\0")[0].decode(errors="replace")


def _users(processes: Path) -> Iterator[int]:
    if not processes.exists():
        listed = subprocess.run(["ps", "-axo", "uid="], capture_output=True, text=True, timeout=10, check=False)
        yield from map(int, listed.stdout.split())
        return
    for process in processes.iterdir():
        if process.name.isdigit():
            with suppress(OSError):
                yield process.stat().st_uid


def _name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"
