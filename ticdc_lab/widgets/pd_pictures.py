"""The pictures of the PD panel: what is drawn of a case's two futures."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ticdc_lab import figures
from ticdc_lab.figures.figure import Figure
from ticdc_lab.figures.theme import sentence
from ticdc_lab.simulate.pd.looking.decisions import about_store, decision_at, wanting
from ticdc_lab.simulate.pd.looking.recording import Recording, why_operator, why_region
from ticdc_lab.simulate.pd.looking.time_left import time_left
from ticdc_lab.simulate.pd.looking.tryout import RealRun, said
from ticdc_lab.simulate.pd.world.changes import Pdctl
from ticdc_lab.simulate.pd.world.reference import Case

STEPS = 60
"""The last step of the player, which is the end of the run."""

PD_ITSELF = "PD's own"
_NAME_CHARS = 32
_ABOUT = re.compile(r"(region|operator|store)\s+(\d+)")


@dataclass(frozen=True, slots=True)
class PdView:
    """What the panel shows.

    The case, or a folder with what pd-ctl printed (``stores.json``, ``regions.json``, and if there are ``config.json``
    and ``rules.json``); when something is said to PD (s) and what, a command a line; whose policies; the seed; the
    picture; what "why" is about (``region 17``, ``operator 3``, ``store 4``, empty: the latest round); the player's
    step, 0 to :data:`STEPS`.
    """

    case: str
    own: str
    at_s: float
    words: str
    policy: str
    seed: int
    picture: str
    about: str
    step: int


@dataclass(frozen=True, slots=True)
class Futures:
    """A case with both its runs: as it is, and with the words or policies; the same one where there are none."""

    case: Case
    one: Recording
    other: Recording
    real: tuple[RealRun, ...]

    def moment(self, view: PdView) -> int:
        """Give the moment that the player stands at, µs."""
        return round(self.one.samples[-1].at_us * view.step / STEPS)


def _why(f: Futures, view: PdView) -> Figure:
    asked = _ABOUT.search(view.about)
    if asked and asked[1] == "region":
        answers = why_region(f.other.at(f.moment(view)), int(asked[2]))
        if not answers:
            return sentence(f"There is no region {asked[2]}", "No region has this id at this moment.")
        return figures.why_table(wanting(answers, f.moment(view), int(asked[2])))
    if asked and asked[1] == "store":
        latest = decision_at(about_store(f.other.decisions, int(asked[2])), f.moment(view))
        none = sentence(f"Nothing was decided about store {asked[2]} yet", "No round looked at it up to here.")
        return none if latest is None else figures.why_table(latest)
    if asked:
        decision = why_operator(f.other, int(asked[2]))
        if decision is None:
            return sentence(f"Operator {asked[2]} has no reason here", "No decision of this run led to it.")
        return figures.why_table(decision)
    latest = decision_at(f.other.decisions, f.moment(view))
    return sentence("Nothing was decided yet", "No round was played up to here.") if latest is None else (
        figures.why_table(latest)
    )  # fmt: skip


def _two(f: Futures, view: PdView) -> Figure:
    first, *more = [t.change.words for t in said(view.words, at_s=0.0) if isinstance(t.change, Pdctl)] or [""]
    words = f"{first[:_NAME_CHARS]} …" if more or len(first) > _NAME_CHARS else first
    name = " and ".join(filter(None, ["" if view.policy == PD_ITSELF else view.policy, words]))
    return figures.two_futures(
        {"as it is": f.one, name or "the same": f.other}, from_s=view.at_s if view.words else 0.0, real=f.real
    )


PICTURES: Mapping[str, Callable[[Futures, PdView], Figure]] = {
    "two futures": _two,
    "where are the regions": lambda f, view: figures.region_map(f.other.at(f.moment(view))),
    "stores, before and now": lambda f, view: figures.store_bars(f.other.at(f.moment(view)), f.other.samples[0]),
    "where are the stores": lambda f, view: figures.label_topology(f.other.at(f.moment(view))),
    "operators": lambda f, view: figures.operator_timeline(f.other),
    "why": _why,
    "why nothing": lambda f, view: figures.why_nothing(f.other),
    "how long until done": lambda f, view: figures.time_left(
        time_left(f.other, f.case.start.settings, at_us=f.moment(view))
    ),
    "reads by key": lambda f, view: figures.key_heat(f.other, of="read"),
    "writes by key": lambda f, view: figures.key_heat(f.other, of="write"),
    "what PD answered": lambda f, view: figures.pd_answers(f.other.happened),
}  # fmt: skip
