"""Sail's server in a process that only its user can reach.

``pysail`` listens on a TCP port without authentication. So it runs in a network namespace of its own, where no other
process has a port, and what comes in over a Unix socket of mode 0600 in a folder of mode 0700 is handed on to it.

Two processes: this one carries bytes, its child is Sail with the Python functions, so that neither waits for the
other's interpreter. Both end with the process that started them. Standard library only: this file is run as a script.
"""

from __future__ import annotations

import _frozen_importlib
import ctypes
import errno
import fcntl
import gc
import itertools
import json
import os
import selectors
import shutil
import signal
import socket
import struct
import sys
import threading
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

SOCKET = "sail.sock"
_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000
_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 0x1
_DIE_WITH_PARENT = 1
_CHUNK = 1 << 18
_LOOK_S, _STOP_S = 1.0, 2.0
_STALLED_S = 5.0
"""For so long no import begins or ends, while one waits for the others: then they wait for it."""
FEW_SEARCHES = 20_000
"""So many new objects before a search for cycles among them, here and in commands.

Of 700, as Python has it, a tenth of the time goes into what imports made, which stays.
"""


_PORT = struct.Struct("!H")
_READY, _STOPPED = b"r", b"s"
"""Sail's word after its port: who asks may be let in, and no function runs any more."""
STOP = "stop"
"""A line of our standard input by which the starter stops all functions; any other is for Sail, see ``_prepare``."""


def main(folder: Path, *, closed: bool) -> int:
    """Serve until the starter ends, closes our standard input, or Sail dies; the status is Sail's."""
    starter = os.getppid()
    if closed:
        try:
            leave_the_network()
        except OSError as error:
            _say(refused=f"a network namespace cannot be had here ({os.strerror(error.errno or errno.EPERM)})")
            return 0
    sail, told, ask = _start_sail()
    if not (port := os.read(told, _PORT.size)):
        _say(refused="Sail did not start")
        return _status(sail)
    server = _listen(folder / SOCKET)
    _say(pid=sail, closed=closed)
    wanted = _serve(server, _PORT.unpack(port)[0], sail, told, ask, starter)
    with suppress(ProcessLookupError):
        os.kill(sail, signal.SIGKILL)
    if wanted:
        (folder / SOCKET).unlink(missing_ok=True)  # the log stays, as evidence
    else:
        forget(folder)
    return _status(sail)


def forget(folder: Path) -> None:
    """Remove a folder, or one that a link names, and the folder that has the link alone."""
    shutil.rmtree(folder.resolve(), ignore_errors=True)
    if folder.is_symlink():
        shutil.rmtree(folder.parent, ignore_errors=True)


def leave_the_network() -> None:
    """Enter a network namespace of our own, with only its loopback device up.

    Raises OSError: the system does not let us.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    uid, gid = os.getuid(), os.getgid()
    if not hasattr(libc, "unshare"):
        raise OSError(errno.ENOSYS, "unshare")
    if libc.unshare(_NEW_NETWORK) != 0:
        if libc.unshare(_NEW_USER | _NEW_NETWORK) != 0:
            raise OSError(ctypes.get_errno(), "unshare")
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        asked = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(s, _GET_FLAGS, asked))[1]
        fcntl.ioctl(s, _SET_FLAGS, struct.pack("16sh14x", b"lo", flags | _UP))


def _start_sail() -> tuple[int, int, int]:
    """Its process, a pipe on which it sends its port and which ends when it does, and one on which it is asked."""
    told, tell = os.pipe()
    asked, ask = os.pipe()  # our end stays open as long as we live
    sail = os.fork()
    if sail == 0:
        os.close(told)
        os.close(ask)
        _be_sail(tell, asked)
    os.close(tell)
    os.close(asked)
    return sail, told, ask


def _be_sail(tell: int, asked: int) -> None:
    """Run the server until our parent ends; never returns."""
    with suppress(AttributeError):
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    try:
        gc.set_threshold(FEW_SEARCHES)
        from pysail.spark import SparkConnectServer  # type: ignore[import-untyped]

        one_import_at_a_time()
        preparing = threading.Thread(target=_prepare, args=(asked, tell))
        signal.signal(signal.SIGUSR1, lambda *_: _stop_functions(tell, preparing))
        server = SparkConnectServer("127.0.0.1", 0)
        server.start(background=True)
        assert server.listening_address
        os.write(tell, _PORT.pack(server.listening_address[1]))
        os.close(0)
        os.close(1)
        preparing.start()
        preparing.join()
    finally:
        os._exit(1)


def _prepare(asked: int, tell: int) -> None:
    """Import each module that is named on a line, until the pipe ends.

    It is done beside the starter's own work, so that functions find it done. Before it, and before any function runs,
    pyarrow looks for pandas: it does so once, under a lock of its own, for which a function that has it and waits for
    the imports here, and an import that uses pyarrow, waited without end.
    """
    with suppress(ImportError):
        import pandas  # noqa: F401
        import pyarrow as pa

        pa.array(())
    os.write(tell, _READY)
    with open(asked) as lines:
        for line in lines:
            with suppress(Exception, SystemExit):  # its user gets the reason
                import_module(line.strip())


def one_import_at_a_time() -> None:
    """Let a thread wait until another has imported what it imports.

    Tasks are threads of one process here, and each imports what its function needs. One that imports a package and one
    that imports a module of it can wait for each other: Python then raises in one of them (``_DeadlockError``).
    A library may have a lock of its own, under which it imports: a waiter continues while nothing is imported.
    """
    find, lock, steps = getattr(_frozen_importlib, "_find_and_load"), threading.RLock(), itertools.count()  # noqa: B009
    step = 0

    def found(*name: Any) -> Any:
        nonlocal step
        seen = -1
        while not (ours := lock.acquire(timeout=_STALLED_S)) and seen != step:
            seen = step
        try:
            step = next(steps)
            return find(*name)
        finally:
            step = next(steps)
            if ours:
                lock.release()

    # by this name the interpreter looks up what imports a module that is not there yet
    setattr(_frozen_importlib, "_find_and_load", found)  # noqa: B010


def _stop_functions(tell: int, preparing: threading.Thread) -> None:
    """Raise ``KeyboardInterrupt`` in every Python function that Sail's threads are running, until none does.

    One that waits for an import of another thread gets it after that.
    """
    until, ours = time.monotonic() + _STOP_S, {threading.get_ident(), preparing.ident}
    while (others := sys._current_frames().keys() - ours) and time.monotonic() < until:
        for thread in others:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(KeyboardInterrupt))
        time.sleep(_STOP_S / 100)
    os.write(tell, _STOPPED)


def _listen(path: Path) -> socket.socket:
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        server.bind(str(path))
    finally:
        os.umask(before)
    server.listen()
    return server


def _serve(server: socket.socket, port: int, sail: int, told: int, ask: int, starter: int) -> bool:
    """Carry bytes, and the starter's words; True when Sail has ended, False when who started us has."""
    waiting, unfinished = selectors.DefaultSelector(), b""
    for what in (told, 0):
        waiting.register(what, selectors.EVENT_READ)
    while os.getppid() == starter:
        for key, _ in waiting.select(_LOOK_S):
            if key.fileobj is server:
                _carry(server.accept()[0], port)
            elif key.fileobj == told:
                if not (said := os.read(told, 1)):
                    return True
                if said == _READY:
                    waiting.register(server, selectors.EVENT_READ)
                else:
                    _say(functions="stopped")
            elif not (said := os.read(0, _CHUNK)):
                return False
            else:
                *lines, unfinished = (unfinished + said).split(b"\n")
                for line in lines:
                    if line == STOP.encode():
                        os.kill(sail, signal.SIGUSR1)
                    else:
                        with suppress(BrokenPipeError):  # it has just ended, and is reported
                            os.write(ask, line + b"\n")
    return False


def _carry(client: socket.socket, port: int) -> None:
    try:
        sail = socket.create_connection(("127.0.0.1", port))
    except OSError:
        client.close()
        return
    sail.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for source, target in ((client, sail), (sail, client)):
        threading.Thread(target=_pump, args=(source, target), daemon=True).start()


def _pump(source: socket.socket, target: socket.socket) -> None:
    buffer = memoryview(bytearray(_CHUNK))
    with suppress(OSError):
        while n := source.recv_into(buffer):
            target.sendall(buffer[:n])
    for end, how in ((target, socket.SHUT_WR), (source, socket.SHUT_RD)):
        with suppress(OSError):
            end.shutdown(how)


def _status(sail: int) -> int:
    code = os.waitstatus_to_exitcode(os.waitpid(sail, 0)[1])
    return code if code >= 0 else 128 - code


def _say(**words: object) -> None:
    os.write(1, json.dumps(words).encode() + b"\n")


if __name__ == "__main__":
    if sys.argv[1:] == ["probe"]:  # ends with 0 where a network namespace can be had
        try:
            leave_the_network()
        except OSError as error:
            sys.exit(os.strerror(error.errno or errno.EPERM))
    else:
        sys.exit(main(Path(sys.argv[1]), closed=sys.argv[2] == "closed"))
