"""A copy of the process that computes beside it: its result comes, or the work is done here; nothing stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from conftest import golden

from ticdc_lab.engine.running import beside, may_fork
from ticdc_lab.errors import SourceError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="copies are made on Linux alone")

US = os.getpid()


def is_gone(process: int) -> bool:
    """Whether it ended, and was waited for."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False


def test_a_copy_gives_its_result_and_is_gone() -> None:
    """The work ran in another process, which leaves no zombie."""
    with beside(os.getpid) as result:
        found = result()
    assert found != US
    assert is_gone(found)


def ended() -> str:
    """Work at which a copy is killed, as by the system for want of memory."""
    if os.getpid() != US:
        os.kill(os.getpid(), signal.SIGKILL)
    return "done here"


def raised() -> str:
    """Work that fails in a copy."""
    if os.getpid() != US:
        raise ValueError("a copy prints nothing")
    return "done here"


def pickled() -> Any:
    """Work whose result no other process can take."""
    return lambda: "done here"


@pytest.mark.parametrize("work", [ended, raised])
def test_what_a_copy_does_not_give_is_done_here(work: Any, capfd: pytest.CaptureFixture[str]) -> None:
    """A copy that is killed or fails costs time and no answer, and prints nothing."""
    with beside(work) as result:
        assert result() == "done here"
    assert capfd.readouterr() == ("", "")


def test_a_result_that_cannot_be_pickled_is_made_here() -> None:
    """What a copy cannot hand over is not lost."""
    with beside(pickled) as result:
        assert result()() == "done here"


def test_an_error_is_raised_where_the_result_is_asked_for() -> None:
    """As the work itself raises it, not as a copy's end."""

    def refuse() -> None:
        raise SourceError("There is nothing to read.", hint="Name another.")

    with beside(refuse) as result, pytest.raises(SourceError, match="nothing to read"):
        result()


def test_an_interrupt_ends_the_copy() -> None:
    """What is no longer waited for computes no more."""
    told, tell = os.pipe()

    def wait() -> None:
        os.write(tell, f"{os.getpid()}\n".encode())
        while True:
            signal.pause()

    with os.fdopen(told) as copies:
        with suppress(KeyboardInterrupt), beside(wait):
            copy = int(copies.readline())
            raise KeyboardInterrupt
        assert is_gone(copy)
    os.close(tell)


def test_a_process_with_a_thread_or_an_engine_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock that another thread holds is never given back in the copy; what shows progress holds none of ours."""
    ours = threading.current_thread()
    later: Any = None
    monkeypatch.setattr("ticdc_lab.engine.sessions.is_wanted", lambda spark: False)
    monkeypatch.setattr(threading, "enumerate", lambda: [ours])
    assert may_fork(later)
    monkeypatch.setattr(threading, "enumerate", lambda: [ours, threading.Thread(name="progress")])
    assert may_fork(later)
    monkeypatch.setattr(threading, "enumerate", lambda: [ours, threading.Thread(name="another")])
    assert not may_fork(later)
    monkeypatch.setattr(threading, "enumerate", lambda: [ours])
    monkeypatch.setattr("ticdc_lab.engine.sessions.is_wanted", lambda spark: True)
    assert not may_fork(later)


def test_where_another_takes_the_end_of_a_copy_none_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """What started the process may ignore SIGCHLD, which stays so: no copy can be waited for then."""
    monkeypatch.setattr("ticdc_lab.engine.sessions.is_wanted", lambda spark: False)
    monkeypatch.setattr(threading, "enumerate", lambda: [threading.current_thread()])
    later: Any = None
    before = signal.getsignal(signal.SIGCHLD)
    try:
        for handler in (signal.SIG_IGN, lambda *_: None):
            signal.signal(signal.SIGCHLD, handler)
            assert not may_fork(later)
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_without_room_for_a_copy_the_work_is_done_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit of processes or of memory costs time and no answer."""

    def refuse() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refuse)
    with beside(os.getpid) as result:
        assert result() == US


COUNTED = """
import os, sys
forks = []
sys.addaudithook(lambda event, given: forks.append(event) if event == "os.fork" else None)
from ticdc_lab.cli import main
try:
    main(["report", sys.argv[1], "--out", sys.argv[2]])
except SystemExit as end:
    print(len(forks), "copy", end.code)
"""


def test_a_report_on_a_small_log_makes_one_copy(tmp_path: Path) -> None:
    """Its answers about dispatch are computed beside the others, on a second core."""
    log, page = str(golden("messages_canal-json-tidb_small.jsonl.gz")), tmp_path / "page.html"
    command = [sys.executable, "-c", COUNTED, log, str(page)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ran.stdout.split() == [str(page), "1", "copy", "0"]
    assert "It was not computed" not in page.read_text()
