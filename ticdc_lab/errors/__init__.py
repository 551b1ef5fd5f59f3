"""Every error this package raises on purpose.

A message has two parts: what is wrong (where, what was expected, what was found), and after an empty line a
``Hint:`` with what the user can do about it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable
from pathlib import Path

from ticdc_lab.errors.redaction import shown_source

__all__ = [
    "ContractError", "DispatchError", "EngineError", "IncompleteHistoryError", "NoAnswerError", "NoTopicError",
    "ProtocolError", "ScenarioError", "SetupError", "SourceError", "SparkMissingError", "StreamingError",
    "TiCDCLabError", "missing_folder",
]  # fmt: skip


class TiCDCLabError(Exception):
    """Base of all errors of this package.

    Parameters
    ----------
    message
        What is wrong: where, what was expected and what was found.
    hint
        What the user can do; printed after an empty line.
    """

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(f"{message}\n\nHint: {hint}" if hint else message)
        self.message = message
        self.hint = hint

    def about(self, source: str) -> None:
        """Name the log that was read in the commands of the hint, in place of ``SOURCE``."""
        named = re.sub(r"\bSOURCE\b", lambda _: shlex.quote(shown_source(source)), self.hint)
        TiCDCLabError.__init__(self, self.message, hint=named)


class SetupError(TiCDCLabError):
    """Java, Python, a jar or a library is missing or of the wrong version."""


class SparkMissingError(SetupError):
    """Apache Spark is needed, and not installed; its client may be."""


class EngineError(TiCDCLabError):
    """The engine that computes has ended, or cannot do what it was asked."""


class SourceError(TiCDCLabError):
    """A source cannot be found, cannot be read, or is of no known kind."""


def missing_folder(out: str | Path) -> SourceError:
    """Give the error of a file to write whose folder is not there."""
    folder = Path(out).absolute().parent
    make = f"mkdir -p {shlex.quote(str(folder))}"
    return SourceError(f"Cannot write {out}: the folder {folder} does not exist.", hint=f"Create it first: {make}")


class NoAnswerError(SourceError):
    """A broker, a registry or a file system does not answer now; later it may."""


class NoTopicError(SourceError):
    """The broker has no such topic, or not yet: one that has just started may not know its topics."""


class ProtocolError(TiCDCLabError):
    """The protocol is unknown, cannot be detected from the bytes, or does not have what an answer needs."""


class IncompleteHistoryError(TiCDCLabError):
    """A table cannot be restored from the log: it ends too early, or misses a change or a definition."""


class DispatchError(TiCDCLabError):
    """A dispatch rule cannot be applied, as TiCDC's ``ErrDispatcherFailed``."""


class UnreadMatcherError(DispatchError):
    """A matcher may be right for TiCDC, but is written in a way that is not read here."""


class ContractError(TiCDCLabError):
    """A DataFrame does not have the columns that a function needs.

    Build it with :meth:`from_missing_and_available`.
    """

    @classmethod
    def from_missing_and_available(
        cls, missing: Collection[str], available: Iterable[str], *, frame: str
    ) -> ContractError:
        """Name the columns that are missing from ``frame`` and those that are there."""
        return cls(
            f"{frame} is missing the column{'s' * (len(missing) != 1)} {sorted(missing)}; it has {sorted(available)}.",
            hint=f"Pass a DataFrame that follows the contract `{frame}` in ticdc_lab.events.schema.",
        )


class ScenarioError(TiCDCLabError):
    """A scenario file cannot be read, or asks for what no run can do; the message begins with ``file:line``."""


class StreamingError(TiCDCLabError):
    """A transform that needs the whole log was given a streaming DataFrame."""
