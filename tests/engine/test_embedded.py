"""The embedded engine: closed to others, ends with its starter, shows what it cannot do."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pytest
from begun_beside import BEGUN_BESIDE, WHOLE
from pyspark.sql import SparkSession

from ticdc_lab.engine import embedded, sail_process, sessions
from ticdc_lab.engine.embedded import SailProcess
from ticdc_lab.engine.sail_process import FEW_SEARCHES, SOCKET
from ticdc_lab.errors import SetupError

STRANGER = 65534
"""The user ``nobody``."""

PROBE = """
import os, socket, sys
os.setgroups([]); os.setgid({user}); os.setuid({user})
def reached(family, address):
    with socket.socket(family) as s:
        try:
            s.connect(address)
        except OSError as error:
            return error.strerror
        return "connected"
print(reached(socket.AF_UNIX, sys.argv[1]))
ports = [int(p) for p in sys.argv[2].split(",") if p]
print(sum(reached(socket.AF_INET, ("127.0.0.1", port)) == "connected" for port in ports))
"""

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
closes = pytest.mark.skipif(embedded.cannot_be_closed() is not None, reason="no network namespace can be had here")


@pytest.fixture
def sail() -> Iterator[SailProcess]:
    """Give a running engine."""
    process = embedded.start(cores=1)
    yield process
    process.stop()


def ports_of(process: SailProcess) -> set[int]:
    """TCP ports of this machine, as its users see them, on which the engine listens: not the ones of
    what runs beside.
    """
    session = process.process.pid  # it began one of its own
    its = {link for pid in os.listdir("/proc") if pid.isdigit() for link in _open_in(int(pid), session)}
    lines = [line.split() for name in ("tcp", "tcp6") for line in Path("/proc/net", name).read_text().splitlines()[1:]]
    found = [fields for fields in lines if fields[3] == "0A" and f"socket:[{fields[9]}]" in its]
    return {int(fields[1].rpartition(":")[2], 16) for fields in found}


def _open_in(pid: int, session: int) -> Iterator[str]:
    with suppress(ProcessLookupError, FileNotFoundError):  # it ended
        if os.getsid(pid) == session:
            for path in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(FileNotFoundError):  # it was closed
                    yield os.readlink(path)


def as_a_stranger(process: SailProcess, ports: set[int]) -> tuple[str, int]:
    """What another user reaches: the socket, and how many of the ports."""
    command = [sys.executable, "-c", PROBE.format(user=STRANGER), str(process.folder / SOCKET)]
    done = subprocess.run([*command, ",".join(map(str, ports))], capture_output=True, text=True, check=True)
    said, n = done.stdout.splitlines()
    return said, int(n)


@closes
@needs_root
def test_another_user_reaches_nothing(sail: SailProcess) -> None:
    """Neither the socket, which is for its owner alone, nor a port, as none is open."""
    assert sail.closed
    assert sail.folder.stat().st_mode & 0o777 == 0o700
    assert (sail.folder / SOCKET).stat().st_mode & 0o777 == 0o600
    assert as_a_stranger(sail, ports_of(sail)) == ("Permission denied", 0)
    sail.folder.chmod(0o755)  # the socket refuses alone, too
    assert as_a_stranger(sail, set())[0] == "Permission denied"


@needs_root
def test_the_probe_gets_in_where_it_is_open() -> None:
    """Planted: without its own network, and with a socket for all, another user connects to both."""
    process, said = embedded._begin(cores=1, closed=False)
    try:
        assert "pid" in said
        process.folder.chmod(0o755)
        (process.folder / SOCKET).chmod(0o666)
        found, n = as_a_stranger(process, ports_of(process))
        assert found == "connected"
        assert n >= 1
    finally:
        process.stop()


def test_where_it_cannot_be_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Alone on a machine loopback will do; with others on it nothing is opened, and it is reported why."""
    begin = embedded._begin
    opened: list[bool] = []

    def refusing(*, cores: int, closed: bool) -> object:
        opened.append(closed)
        process, said = begin(cores=cores, closed=False)
        if closed:
            process.stop()
            return process, {"refused": "a network namespace cannot be had here (Operation not permitted)"}
        return process, said

    monkeypatch.setattr(embedded, "_begin", refusing)
    monkeypatch.setattr(embedded, "shared_with", lambda: None)
    process = embedded.start(cores=1)
    process.stop()
    assert opened == [True, False]
    opened.clear()
    monkeypatch.setattr(embedded, "shared_with", lambda: "'ada' is logged in too")
    with pytest.raises(SetupError, match="run programs as you, and 'ada' is logged in too") as caught:
        embedded.start(cores=1)
    assert "--engine spark" in caught.value.hint
    assert opened == [True]
    monkeypatch.setattr(embedded, "cannot_be_closed", lambda: "no network namespace (planted)")
    assert "'ada' is logged in too, and it cannot be closed" in (embedded.missing() or "")


STARTER = """
import os, signal
from ticdc_lab.engine import embedded
process = embedded.start(cores=1)
print(process.folder, process.near, process.socket.exists(), process.process.pid, process.pid, flush=True)
{end}
"""


KILLED = "os.kill(os.getpid(), signal.SIGKILL)"


@pytest.mark.parametrize(("end", "deep"), [("pass", 0), (KILLED, 0), ("os._exit(0)", 0), ("pass", 5), (KILLED, 5)])
def test_it_ends_with_its_starter(end: str, deep: int, tmp_path: Path) -> None:
    """However that ends, and no matter how long the path of temporary files is: no process and no
    socket stay behind.
    """
    place = tmp_path.joinpath(*["of-one-job-of-many"] * deep)
    place.mkdir(parents=True, exist_ok=True)
    script, environ = STARTER.format(end=end), os.environ | {"TMPDIR": str(place)}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, env=environ)
    folder, near, has_socket, *pids = done.stdout.split()
    assert len(pids) == 2 and has_socket == "True" and Path(folder).parent == place
    _soon(lambda: not any(Path(p).exists() for p in (folder, near, *(f"/proc/{pid}" for pid in pids))))
    assert not Path(near).is_symlink() and (near == folder or not Path(near).parent.exists())


def test_a_killed_carrier_takes_sail_with_it(sail: SailProcess) -> None:
    """Nothing runs on that is out of reach."""
    os.kill(sail.process.pid, signal.SIGKILL)
    _soon(lambda: _state(sail.pid) in ("", "Z"))


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return ""


def _soon(holds: object) -> None:
    assert callable(holds)
    while not holds():  # one that never holds is ended by faulthandler_timeout, which shows this line
        time.sleep(0.05)


SESSION = """
import os, sys, time
from ticdc_lab import engine_of, session
from ticdc_lab.errors import EngineError, SetupError, TiCDCLabError
spark = session("embedded", cores=2)
"""


def in_a_process(code: str) -> str:
    """What a fresh Python prints that runs this on the embedded engine."""
    done = subprocess.run(
        [sys.executable, "-c", SESSION + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_a_session_of_it() -> None:
    """It computes in UTC, shows its name, is given again, and makes room for another when it is stopped."""
    said = in_a_process("""
        from pyspark.sql import functions as F
        from ticdc_lab.engine import is_sail, is_several_machines, parallelism
        print(engine_of(spark), engine_of(spark.range(1)) == engine_of(spark), session() is spark)
        print(spark.range(3).count(), parallelism(spark), is_sail(spark), is_several_machines(spark))
        print(spark.range(1).select(F.timestamp_seconds(F.lit(0)).cast("string")).head()[0])
        for wanted in ({"engine": "spark"}, {"cores": 1}):
            try:
                session(**wanted)
            except SetupError as error:
                print("already active" in error.message, "Stop it first" in error.hint)
        spark.stop()
        print(session("embedded").range(4).count(), "pyspark.core.context" in sys.modules and "used")
    """).splitlines()
    assert said[0].startswith("embedded (Sail 0.") and said[0].endswith(" True True")
    assert said[1:5] == ["3 2 True False", "1970-01-01 00:00:00", *["True True"] * 2]
    assert said[5].startswith("4 ")


def test_what_is_begun_beside_it_is_not_aborted() -> None:
    """A child that Python forks to run something, as Spark's Java is, while a query is under way (one in 100 was)."""
    assert in_a_process("def ask():\n    spark.range(1000).toArrow()\n" + BEGUN_BESIDE) == WHOLE


def test_its_death_is_an_error_of_ours() -> None:
    """Killed in the middle of a job: reported at once, with Spark as the way out, and a new session computes on."""
    said = in_a_process("""
        import signal, threading
        from ticdc_lab.engine.sessions import sail_process_of
        def slow(batches):
            for batch in batches:
                os.kill(os.getpid(), signal.SIGKILL)
                yield batch
        try:
            spark.range(10).mapInArrow(slow, "id bigint").collect()
        except EngineError as error:
            print(error.message, "--engine spark" in error.hint)
        try:
            spark.range(1).count()
        except EngineError as error:
            print("again")
        print(session("embedded").range(5).count())
    """).splitlines()
    assert said == [
        "The embedded engine has ended in the middle of its work (killed by signal 9). True",
        "again",
        "5",
    ]


def test_what_it_lacks_is_said() -> None:
    """A function of Spark's that it does not have is no other answer and no trace of gRPC."""
    said = in_a_process("""
        try:
            spark.sql("select from_avro(x'00', '\\"int\\"')").collect()
        except EngineError as error:
            print(error.message, "--engine spark" in error.hint)
        def planted(batches):
            for batch in batches:
                raise ValueError("planted 17")
                yield batch
        try:
            spark.range(1).mapInArrow(planted, "id bigint").collect()
        except Exception as error:
            print(type(error).__name__, "ValueError: planted 17" in str(error), "grpc" in str(error))
    """).splitlines()
    assert said == ["The embedded engine cannot do this: function: from_avro. True", "PythonException True False"]


def test_its_functions_seldom_search_for_cycles(spark: SparkSession) -> None:
    """What they import stays, and going through it after every 700 objects took a tenth of their time."""

    def searching_after(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import gc

        yield pa.RecordBatch.from_pydict({"id": [gc.get_threshold()[0]]})

    assert spark.range(1).mapInArrow(searching_after, "id bigint").toArrow()["id"].to_pylist() == [FEW_SEARCHES]


def test_it_prepares_what_it_is_told_beside_its_starter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be done keeps neither the next from being done nor functions from being stopped."""
    assert all(map(find_spec, embedded.OF_EACH_LOG))
    for name in ("wanted", "again"):
        (tmp_path / f"{name}.py").write_text("open(__file__ + '.imported', 'w').close()\n")
    (tmp_path / "failing.py").write_text("1 / 0")
    (tmp_path / "leaving.py").write_text("raise SystemExit")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(embedded, "OF_EACH_LOG", ("no_such_module", "failing", "leaving", "no such name", "wanted"))
    process = embedded.start(cores=1)
    try:
        _until_there(tmp_path / "wanted.py.imported")
        process.stop_functions()
        process.prepare("again")
        _until_there(tmp_path / "again.py.imported")
        assert not process.ended
    finally:
        process.stop()


def test_one_that_has_ended_is_told_nothing_and_stops_as_ever() -> None:
    """Whether it was stopped, or died with lines for it still to be written."""
    process = embedded.start(cores=1)
    os.kill(process.pid, signal.SIGKILL)
    process.process.wait()
    process.prepare("sys")
    process.stop()
    process.prepare("sys")
    assert not process.folder.exists()


def _until_there(file: Path) -> None:
    _soon(file.exists)


AT_ONCE = """
import sys, threading
from ticdc_lab.engine.sail_process import one_import_at_a_time
folder, mended = sys.argv[1:]
sys.path.insert(0, folder)
if mended == "mended":
    one_import_at_a_time()
sys.inside, sys.most = [], []
threads = [threading.Thread(target=__import__, args=[name]) for name in ("one", "two")]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(max(sys.most))
"""


BODY = """
import sys, time
sys.inside.append(__name__)
until = time.monotonic() + (0.3 if sys.argv[2] == "mended" else 60)
while len(sys.inside) < 2 and not sys.most and time.monotonic() < until:
    time.sleep(0.01)
sys.most.append(len(sys.inside))
sys.inside.remove(__name__)
"""


@pytest.mark.parametrize(("how", "at_once"), [("mended", 1), ("as it is", 2)])
def test_one_task_imports_at_a_time(tmp_path: Path, how: str, at_once: int) -> None:
    """Two threads import a module each: one after the other in Sail's process, at once in Python as it is."""
    for name in ("one", "two"):
        (tmp_path / f"{name}.py").write_text(BODY)
    done = subprocess.run(
        [sys.executable, "-c", AT_ONCE, str(tmp_path), how], capture_output=True, text=True, timeout=600, check=True
    )
    assert done.stdout.strip() == str(at_once)


LOCKED = """
import sys, threading
from ticdc_lab.engine import sail_process
sys.path.insert(0, sys.argv[1])
sail_process._STALLED_S = 0.05
sail_process.one_import_at_a_time()
sys.own, sys.taken, sys.begun = threading.Lock(), threading.Event(), threading.Event()
def uses_the_library():
    with sys.own:
        sys.taken.set()
        sys.begun.wait()
        import another
first = threading.Thread(target=uses_the_library)
first.start()
sys.taken.wait()
import using_it
first.join()
print("both", sys.modules["another"].__name__)
"""


def test_a_lock_of_a_library_under_which_it_imports_stops_nobody_for_ever(tmp_path: Path) -> None:
    """As pyarrow's, under which it imports pandas, beside a module that uses pyarrow while it is imported."""
    (tmp_path / "another.py").touch()
    (tmp_path / "using_it.py").write_text("import sys\nsys.begun.set()\nwith sys.own:\n    pass\n")
    done = subprocess.run(
        [sys.executable, "-c", LOCKED, str(tmp_path)], capture_output=True, text=True, timeout=600, check=True
    )
    assert done.stdout.strip() == "both another"


READY = """
import os, sys
from ticdc_lab.engine import sail_process
asked, ask = os.pipe()
os.close(ask)
os.write = lambda fd, said: print(fd, said, hasattr(sys.modules.get("pandas"), "DataFrame"))
sail_process._prepare(asked, 77)
"""


def test_nobody_is_let_in_before_pyarrow_has_looked_for_pandas() -> None:
    """It does so once, under a lock: see above."""
    done = subprocess.run([sys.executable, "-c", READY], capture_output=True, text=True, timeout=600, check=True)
    assert done.stdout.strip() == f"77 {sail_process._READY!r} True"


def test_a_main_module_without_a_spec_is_given_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """After IPython's ``%reset`` its main module has no ``__spec__`` at all, which ended in a trace."""
    main = ModuleType("__main__")
    del main.__spec__
    monkeypatch.setitem(sys.modules, "__main__", main)
    embedded.be_no_doctest()
    assert main.__spec__ is not None and main.__spec__.name == "__main__"


def test_no_port_is_open_while_a_closed_one_computes(sail: SailProcess) -> None:
    """Its one listener is in its own network; ours may have the same number for another one."""
    if not sail.closed:
        pytest.skip("no network namespace can be had here")
    assert len(theirs := _listeners(f"/proc/{sail.pid}/net/tcp")) == 1
    assert not theirs & _listeners("/proc/self/net/tcp")


def test_a_port_on_our_network_would_be_seen() -> None:
    """The planted fault of the test above."""
    before = _listeners("/proc/self/net/tcp")
    with socket.create_server(("127.0.0.1", 0)):
        assert _listeners("/proc/self/net/tcp") - before


def _listeners(table: str) -> set[str]:
    """Inodes of the listening sockets: no two sockets of a machine have one."""
    rows = [line.split() for line in Path(table).read_text().splitlines()[1:]]
    return {row[9] for row in rows if row[3] == "0A"}


def test_who_looks_at_a_session_starts_no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A notebook, a copy and an inspector ask for special names, which one that waits for its engine does not have."""
    started: list[object] = []
    monkeypatch.setattr(sessions, "_embedded", lambda *of: started.append(of))
    monkeypatch.setenv(embedded.CONNECT_MODE, "1")  # as it was, afterwards
    later = sessions.Later(2, {})
    special = ("_repr_html_", "_ipython_display_", "__deepcopy__", "_jsparkSession")
    assert not [name for name in special if hasattr(later, name)] and not started
