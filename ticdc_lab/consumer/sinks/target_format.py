"""The format of what a target says of itself."""

from __future__ import annotations

from ticdc_lab.errors import SourceError

FORMAT = 2
"""Of all kinds of targets; 1 did not say it, and is otherwise the same."""


def require_format(name: str, written: int) -> None:
    """Raise :class:`SourceError` where a later version has written a target."""
    if written > FORMAT:
        raise SourceError(
            f"{name} was written by a later version of ticdc_lab: it has format {written}, expected at most {FORMAT}.",
            hint="Go on with that version, or name another target.",
        )
