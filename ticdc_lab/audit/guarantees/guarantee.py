"""What a guarantee is: a sentence of TiCDC's design, the function that checks it, and how people read of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from ticdc_lab.audit.marks import Event

if TYPE_CHECKING:
    from ticdc_lab.audit.defined import RowsDefined
    from ticdc_lab.audit.findings import ImageFindings, RowFindings
    from ticdc_lab.audit.history import Suspects
    from ticdc_lab.audit.stated import Stated

    RowCheck = Callable[[Suspects], RowFindings]
    ImageCheck = Callable[[RowsDefined], ImageFindings]
    LogCheck = Callable[[Stated], Iterator[Event]]

Need = Literal[
    "commit_ts", "watermarks", "ddl", "history", "definitions", "all messages", "all partitions", "partition", "offset"
]
"""What a log must have for a check. The partitions have rows; every sample has all watermarks and DDL.

``ddl``: a log without DDL shows nothing of it, so the guarantee is then listed as not checked; ``definitions``: the
same, unless messages define the tables. ``history``: images that chain. ``all messages``, ``all partitions``: a sample
that leaves some out cannot show it.
``partition`` and ``offset`` are what some dumps of other tools do not have.
"""

Remembered = Literal["marks", "rows", "images"]
"""Watermarks, DDL, Admin events and offsets; besides the last changes of each row; or the values of rows, until all DDL
that may define their tables were read.
"""

Form = Literal["moved", "below", "contents", "gap", "absent", "torn", "sides"]


@dataclass(frozen=True, slots=True)
class Picture:
    """How :mod:`ticdc_lab.figures.counterexamples` draws the evidence of a finding.

    ``moved``: in two partitions; ``below``: after ``words[0]``, no ``words[1]`` may lie below it; ``contents``: two
    messages, each under its word, with a note; ``gap``: offsets between two; ``absent``: in one partition alone, or as
    ``contents`` where another message is there. ``torn`` and ``sides`` are of consumers.
    """

    form: Form
    words: tuple[str, str] = ("", "")
    note: str = ""


@dataclass(frozen=True, slots=True)
class Guarantee:
    """One promise of TiCDC, declared in this one place.

    A function becomes its check by :meth:`of_rows`, :meth:`of_images` or :meth:`of_log`. Its name is the statement that
    people read, the first paragraph of its docstring the line of ``docs/audit.md``.
    """

    sentence: str  # of its source
    needs: tuple[Need, ...]
    do: str  # what to check or run next: with {source}, {topic}, {table}, {number} and {zone} of a finding
    picture: Picture | None  # None where one message, or the sentence, shows all
    at_once: bool  # whether no later message explains what breaks it, so that a watch opens its findings at once
    instead: Mapping[str, str] = field(default_factory=dict)  # other steps, by words of the causes that need them
    by_one: bool = False  # of rows: whether one change alone can break it, without a former change of its row
    by_loss: bool = False  # whether lost messages break it: it comes before others of its severity
    # Exactly one is set: what finds what breaks it, in the histories of rows, in the images of row changes beside their
    # tables' definitions, or in what the log states besides.
    row: RowCheck | None = None
    image: ImageCheck | None = None
    log: LogCheck | None = None

    def of_rows(self, check: RowCheck) -> RowCheck:
        """Make a function of rows' histories its check."""
        DECLARED[check.__name__] = replace(self, row=check)
        return check

    def of_images(self, check: ImageCheck) -> ImageCheck:
        """Make a function of rows beside their tables' definitions its check."""
        DECLARED[check.__name__] = replace(self, image=check)
        return check

    def of_log(self, check: LogCheck) -> LogCheck:
        """Make a function of what the log states besides its rows its check."""
        DECLARED[check.__name__] = replace(self, log=check)
        return check

    @property
    def remembers(self) -> Remembered:
        """What must be remembered of messages that were read to judge those that come."""
        return "rows" if self.row else "marks" if self.log else "images"

    @property
    def of_ddl(self) -> bool:
        """Whether a log without DDL cannot show it."""
        return not {"ddl", "definitions"}.isdisjoint(self.needs)

    @property
    def of_watermarks(self) -> bool:
        """Whether it is about watermarks alone: a watch forgets old ones."""
        return self.log is not None and "watermarks" in self.needs and not self.of_ddl


DECLARED: dict[str, Guarantee] = {}
"""By the name of their function."""

# What to do next, of several.

SHOW_ROW = "Show the row's messages: ticdc-lab audit {source} --messages-of {number}"
SHOW_ORDER = (
    "Show its messages: ticdc-lab audit {source} --messages-of {number}. Then look in TiCDC's log for a restart or a "
    "moved table at that time."
)
LOOK_FOR_RESTART = (
    "Look in TiCDC's log for a restart or a moved table at that time: ticdc-lab why {source} --cdc-log FILE"
)
COMPARE_DDL = "Compare both DDL: ticdc-lab audit {source} --messages-of {number}"

LACKED = "it may lie at offsets that are missing from the recording"
"""The end of a cause."""
SENT_BEFORE = ", unless it was sent before, in a part of its partition that was not recorded"
