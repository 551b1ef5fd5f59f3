"""What a changefeed was set to, as a table that people can check."""

from __future__ import annotations

import pandas as pd

from ticdc_lab.answers.answer import Answer
from ticdc_lab.settings import Settings
from ticdc_lab.settings.setting import NOT_COMPARED
from ticdc_lab.words import are, count

COLUMNS = ("setting", "value", "known from", "how surely", "evidence", "what depends on it", "if it is wrong")
"""Columns of the table."""

_FROM = {"option": "from options", "file": "from the changefeed's file", "bytes": "from the log's bytes"}


def settings(known: Settings) -> Answer:
    """Each setting that is known: its value, where from, how surely, what depends on it, what to give if it is wrong.

    What contradicts the bytes comes first.
    """
    rows = pd.DataFrame(known.rows(), columns=COLUMNS)
    read = [s for s in known if s.bearing == "read"]
    places = [(sum(s.source == place for s in read), words) for place, words in _FROM.items()]
    some = [(n, words) for n, words in places if n]
    where = f" {some[0][1]}" if len(some) == 1 else ": " * bool(some) + ", ".join(f"{n} {words}" for n, words in some)
    finding = f"{count(len(read), 'setting')} of the changefeed {are(len(read))} known{where}."
    wrong = [c.words for c in known.contradictions]
    if wrong:
        finding = (
            f"{count(len(wrong), 'setting')} contradict{'s' if len(wrong) == 1 else ''} the log. {wrong[0]} {finding}"
        )
    return Answer(
        "settings", "How was its changefeed configured?", finding, {"settings": rows}, known.not_evaluated,
        [*wrong[1:], *_not_compared(known)], {"contradictions": wrong},
    )  # fmt: skip


def _not_compared(known: Settings) -> list[str]:
    """What was given and differs from what the bytes fit, of settings where two values may mean the same.

    What the log contradicts is not among them.
    """
    wrong = {c.given.name for c in known.contradictions}
    return [
        f"{given.name} of the {given.source} is {given.sure} ({given.evidence}). The log fits other rules"
        f"{', too' if given.sure == 'verified' else ', and not all rows were compared'}: {s.text}, {s.evidence}."
        for s in known.known
        if s.name in NOT_COMPARED - wrong and s.source == "bytes"
        if (given := known.given(s.name)) is not None and given.source != "bytes" and given.value != s.value
    ]
