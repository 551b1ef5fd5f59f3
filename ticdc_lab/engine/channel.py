"""How the client reaches the embedded engine: through its socket, with every call known, so that it can be stopped."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import grpc
from google.rpc.error_details_pb2 import ErrorInfo  # type: ignore[import-untyped]
from grpc_status import rpc_status  # type: ignore[import-untyped]
from pyspark.sql.connect.client import ChannelBuilder
from pyspark.sql.connect.client.retries import DefaultPolicy

if TYPE_CHECKING:
    from ticdc_lab.engine.embedded import SailProcess

_PATIENCE_S = 5.0
_RUNS_SOMETHING = ("/ExecutePlan", "/ReattachExecute")


class Closed(ChannelBuilder):
    """Through the socket; gRPC would take its path for the name of a host, which Sail refuses."""

    def __init__(self, process: SailProcess, calls: Calls) -> None:
        options = [("grpc.default_authority", "localhost"), ("grpc.enable_http_proxy", 0)]
        super().__init__(options, {ChannelBuilder.PARAM_USER_ID: "ticdc_lab"})
        self.process = process
        self.add_interceptor(calls)

    def toChannel(self) -> grpc.Channel:
        """Open it."""
        return self._insecure_channel(f"unix:{self.process.socket}")

    @property
    def host(self) -> str:
        """What it leads to, in words."""
        return self.process.name


class WhileAlive(DefaultPolicy):
    """An engine that has ended is reported as ended, and not asked for ten minutes more."""

    def __init__(self, process: SailProcess) -> None:
        super().__init__(max_retries=5, max_backoff=1000)
        self.process = process

    def can_retry(self, e: BaseException) -> bool:
        """Raise what is no error of the question, but of the engine."""
        if isinstance(e, grpc.RpcError):
            if e.code() == grpc.StatusCode.UNAVAILABLE:
                self.process.require_alive()
            if (unknown := _unsupported(e)) is not None:
                raise self.process.unable_to(unknown) from None
        return super().can_retry(e)


class Calls(grpc.UnaryStreamClientInterceptor):  # type: ignore[misc]
    """What runs on the engine, by the tags of its work.

    Sail takes an interruption, but a Python function that is running runs to its end, and which thread runs whose
    function is unknown. So functions are stopped (:meth:`SailProcess.stop_functions`) if all that run belong to
    stopped work; else when the last work beside it has ended.
    """

    def __init__(self, process: SailProcess) -> None:
        self._process = process
        self._lock = threading.Lock()
        self._running: dict[Any, tuple[str, frozenset[str]]] = {}
        self._left_behind = False

    def intercept_unary_stream(self, continuation: Callable[[Any, Any], Any], details: Any, request: Any) -> Any:
        """Remember a call that computes, until it is over."""
        if not details.method.endswith(_RUNS_SOMETHING):
            return continuation(details, request)
        tags = frozenset(getattr(request, "tags", ()))
        with self._lock:
            earlier = (known for operation, known in self._running.values() if operation == request.operation_id)
            call = continuation(details, request)
            self._running[call] = (request.operation_id, tags or next(earlier, tags))
        call.add_done_callback(self._over)
        return call

    def has(self, tag: str) -> bool:
        """Whether work with this tag runs."""
        with self._lock:
            return any(tag in tags for _, tags in self._running.values())

    def cancel(self, tag: str, interrupt: Callable[[], object]) -> None:
        """End the calls of work with this tag, and the functions that it runs.

        ``tag``: of the work. ``interrupt``: asks Sail to end it; that is answered when a thread of Sail's is free, so
        perhaps when a function has ended.
        """
        with self._lock:
            stopped = [call for call, (_, tags) in self._running.items() if tag in tags]
            for call in stopped:
                call.cancel()
                self._running.pop(call, None)
            asking = threading.Thread(target=interrupt, name="interrupt", daemon=True)
            asking.start()
            self._left_behind |= bool(stopped)
            self._stop_left_behind(asking)

    def _over(self, call: Any) -> None:
        given_up = call.code() is grpc.StatusCode.CANCELLED  # as by Ctrl-C
        with self._lock:
            known = self._running.pop(call, None) is not None
            self._left_behind |= known and given_up
            wanted = self._left_behind and not self._running
        if wanted:  # not in this thread, which is gRPC's own
            threading.Thread(target=self._stop_later, name="stop-functions", daemon=True).start()

    def _stop_later(self) -> None:
        with self._lock:
            self._stop_left_behind()

    def _stop_left_behind(self, asking: threading.Thread | None = None) -> None:
        """Stop functions without a waiting caller, if none has one; no call begins meanwhile."""
        if not self._left_behind or self._running:
            return
        self._left_behind, until = False, time.monotonic() + _PATIENCE_S
        with suppress(OSError, ValueError):  # the engine is ending
            self._process.stop_functions()
            while asking is not None and asking.is_alive() and time.monotonic() < until:
                asking.join(_PATIENCE_S / 50)
                self._process.stop_functions()


def _unsupported(error: Any) -> str | None:
    """What Sail reports as unsupported; None where an error is about something else."""
    status = rpc_status.from_call(error)
    for detail in status.details if status is not None else ():
        info = ErrorInfo()
        if detail.Unpack(info) and info.reason.endswith("UnsupportedOperationException"):
            return str(status.message)
    return str(error.details()) if error.code() == grpc.StatusCode.UNIMPLEMENTED else None
