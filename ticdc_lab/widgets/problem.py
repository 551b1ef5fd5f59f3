"""What is wrong with what was chosen, as a panel shows it."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ticdc_lab.errors import TiCDCLabError
from ticdc_lab.events.tso import with_clock
from ticdc_lab.words import COMMAND


class ControlError(TiCDCLabError):
    """What a control chooses cannot be drawn; the panel reports it beside the control.

    ``control``: the field of the panel's value. ``message``, ``hint``: as of :class:`ticdc_lab.errors.TiCDCLabError`.
    """

    def __init__(self, control: str, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.control = control


@contextmanager
def blamed_on(control: str) -> Iterator[None]:
    """Attach every error of this package that the body raises to a control."""
    try:
        yield
    except ControlError:
        raise
    except TiCDCLabError as error:
        raise ControlError(control, error.message, hint=error.hint) from error


@dataclass(frozen=True, slots=True)
class Problem:
    """Why there is no figure of the controls' values."""

    # ``message``, ``hint``: in words.
    message: str
    hint: str = ""
    control: str = ""  # where it lies; empty where that is not known
    trace: str = ""  # of a defect: where in the code

    @classmethod
    def of(cls, error: BaseException) -> Problem:
        """Read an error: one of this package is words, any other is a defect."""
        if isinstance(error, TiCDCLabError):
            return cls(with_clock(error.message), _in_python(error.hint), getattr(error, "control", ""))
        said = f"This is a defect of ticdc_lab: {type(error).__name__}: {error}"
        return cls(said, "Please report it, with the trace below.", trace="".join(traceback.format_exception(error)))

    def as_dict(self) -> dict[str, str]:
        """What the page shows above the figure; nothing where a control shows it."""
        return {} if self.control else {"message": self.message, "hint": self.hint, "trace": self.trace}


_OPTION = re.compile(r"--([a-z][a-z-]*)(?: (table|auto|spark|embedded|[\w|]*\|[\w|]*|\d+g?|[A-Z][A-Z=]*\b))?")
"""An option of a command, with what is given to it."""


def _in_python(hint: str) -> str:
    """A hint as one reads it in a notebook: options of commands are arguments there."""
    here = hint.replace("Run with --debug for the whole trace; please report it.", "Please report it.")
    here = here.replace("Run with --debug for the whole trace. ", "")
    words = _OPTION.sub(lambda m: f"{m[1].replace('-', '_')}={f'{m[2]!r}' if m[2] else '..'}", COMMAND.sub("\0", here))
    commands = iter(COMMAND.findall(here))
    return re.sub("\0", lambda _: next(commands), words)
