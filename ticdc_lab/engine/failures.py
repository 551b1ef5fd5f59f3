"""What an engine throws, as an error of this package: in a sentence, with what can be done about it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from traceback import walk_tb

from ticdc_lab import errors
from ticdc_lab.errors import EngineError, TiCDCLabError
from ticdc_lab.errors.whole_files import SAID_OF_A_FULL_DISK
from ticdc_lab.words import first_line

_ROOTS = ("pyspark.errors", "py4j", "grpc", "pyspark.sql.connect")
"""Modules whose exceptions come from an engine."""

_PYTHON = re.compile(r"^(?!\s)((?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit)): (.*)$", re.MULTILINE)
_CONDITION = re.compile(r"^\[[A-Z_.0-9]+\]\s*|\s*SQLSTATE: \w+;?")

_ENDED = ("Connection refused", "Answer from Java side is empty", "Error while sending or receiving", "UNAVAILABLE")
_WORKER_ENDED = ("Python worker exited unexpectedly", "Python worker failed to connect back", "reading the port number")
_MEMORY = ("OutOfMemoryError", "Resources exhausted", "MemoryError")


def in_our_words(error: BaseException) -> TiCDCLabError | None:
    """The error of this package that an engine's exception is; None for an exception that no engine threw.

    ``error``: Spark's, as of its analysis or of a task, classic or by Connect; what gRPC or the gateway to the JVM
    throws where an engine has ended; or an error of a Python function that a worker ran, in the engine's words.
    Returns: an error of this package that a worker raised comes as it was, with its hint; the rest as
    :class:`~ticdc_lab.errors.EngineError`. One of this package is given back.
    """
    if isinstance(error, TiCDCLabError):
        return error
    said = str(error).strip() or type(error).__name__
    if isinstance(error, ConnectionError) and _is_raised_by_engine(error):
        said = _ENDED[0]
    elif not any(kind.__module__.startswith(_ROOTS) for kind in type(error).__mro__):
        return None
    return said_in_a_task(error) or _of_the_machine(said) or _of_the_question(said)


@contextmanager
def in_words() -> Iterator[None]:
    """Print an error of this package, or of its engine, and continue after the block.

    For notebooks: a question that one log or one engine cannot answer does not stop the next one. Every other
    exception goes through.
    """
    try:
        yield
    except Exception as error:
        if (ours := in_our_words(error)) is None:
            raise
        print(ours)


def _is_raised_by_engine(error: BaseException) -> bool:
    """Whether it comes out of an engine's modules: a connection that is gone has no class of theirs."""
    modules = (frame.f_globals.get("__name__", "") for frame, _ in walk_tb(error.__traceback__))
    return any(str(module).startswith(_ROOTS) for module in modules)


def engine_errors() -> AbstractContextManager[None]:
    """Raise what an engine throws in the body as an error of this package."""
    return raised_as(in_our_words)


def _of_the_machine(said: str) -> EngineError | None:
    if any(words in said for words in SAID_OF_A_FULL_DISK):
        return EngineError(
            "The disk is full: the engine cannot write its result, or what it keeps meanwhile.",
            hint="Free some space where the result goes (--out, --sink) and where TMPDIR lies, or set TMPDIR to a "
            "folder of a larger disk.",
        )
    if any(words in said for words in _WORKER_ENDED):
        return EngineError(
            "A Python worker of the engine has ended in the middle of its work: it was killed, or it crashed.",
            hint="Run the same command again. If it fails each time, the machine may be out of memory: check the "
            "kernel's log (dmesg), or use fewer cores.",
        )
    if any(words in said for words in _MEMORY):
        return EngineError(
            "The engine has not enough memory for this.",
            hint="Give Spark a larger heap: --driver-memory 8g, in Python session('spark', driver_memory='8g'). "
            "A sample of the log needs less: --tables, --from, --to.",
        )
    if any(words in said for words in _ENDED):
        return EngineError(
            "The engine has ended in the middle of its work.",
            hint="Try again with a new session: ticdc_lab.session(). The embedded engine needs none of Spark's memory: "
            "--engine embedded; what it cannot do runs with --engine spark.",
        )
    return None


def _of_the_question(said: str) -> EngineError:
    python = _PYTHON.findall(said) if "Traceback" in said else []
    if python:
        kind, what = python[-1]
        return EngineError(
            f"A function of the engine's workers failed: {kind.rpartition('.')[2]}: {what}",
            hint="Run with --debug for the whole trace; please report it.",
        )
    first = _CONDITION.sub("", first_line(said)).strip()
    return EngineError(
        f"The engine refuses the question: {first}",
        hint="Run with --debug for the whole trace. Another engine may take it: --engine spark, or --engine embedded.",
    )


# Errors of this package that were raised in a task: what an engine makes of them is a trace, not a sentence.

_SAID = re.compile(r"ticdc_lab\.errors\.(\w+): (.+)(?:\n\s*\nHint: (.+))?")


def said_in_a_task(error: BaseException) -> TiCDCLabError | None:
    """The error that a task raised on purpose, out of the trace that the engine makes of it."""
    found = _SAID.search(str(error))
    kind = getattr(errors, found[1], None) if found else None
    if found is None or not (isinstance(kind, type) and issubclass(kind, TiCDCLabError)):
        return None
    return kind(found[2].strip(), hint=(found[3] or "").strip())


def task_errors() -> AbstractContextManager[None]:
    """What a task raised on purpose in the body is raised here as what it is."""
    return raised_as(said_in_a_task)


@contextmanager
def raised_as(ours: Callable[[BaseException], TiCDCLabError | None]) -> Iterator[None]:
    """Raise what the body throws as the error that ``ours`` finds in it, if it finds one."""
    try:
        yield
    except TiCDCLabError:
        raise
    except Exception as error:  # an engine's own classes would have to be imported first
        found = ours(error)
        if found is None:
            raise
        raise found from error
