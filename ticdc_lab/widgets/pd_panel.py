"""PD tried out: a case or one's own cluster, commands and policies, and the pictures of its two futures."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import ipywidgets as widgets

from ticdc_lab import figures
from ticdc_lab.figures.figure import Figure
from ticdc_lab.figures.theme import TITLE_CHARS, label, sentence, wrapped
from ticdc_lab.pd_core.before_after import before_after
from ticdc_lab.pd_core.pd_ctl_json import Loaded, from_folder
from ticdc_lab.simulate.pd.looking.decisions import about_store, decision_at, wanting
from ticdc_lab.simulate.pd.looking.own_cluster import own_case, own_run
from ticdc_lab.simulate.pd.looking.recording import why_operator, why_region
from ticdc_lab.simulate.pd.looking.time_left import time_left
from ticdc_lab.simulate.pd.looking.tryout import RealRun, said, tried
from ticdc_lab.simulate.pd.world.changes import Pdctl
from ticdc_lab.simulate.pd.world.pd_policies import DEFAULT_POLICIES
from ticdc_lab.simulate.pd.world.policy import Policy
from ticdc_lab.simulate.pd.world.recording import Recording
from ticdc_lab.simulate.pd.world.reference import Case
from ticdc_lab.widgets.composed import Player
from ticdc_lab.widgets.controls import WIDE, choice, line, lines, picture, seconds, seed
from ticdc_lab.widgets.drawing import Drawn
from ticdc_lab.widgets.panel import Panel
from ticdc_lab.widgets.problem import ControlError, blamed_on
from ticdc_lab.widgets.runs import AGAIN, KEPT, Kept

# The pictures of the PD panel: what is drawn of a case's two futures.


STEPS = 60
"""The last step of the player, which is the end of the run."""

PD_ITSELF = "PD's own"
_NAME_CHARS = 32
_ABOUT = re.compile(r"(region|operator|store)\s+(\d+)")


@dataclass(frozen=True, slots=True)
class PdView:
    """What the panel shows.

    The case, or a folder or tar with what pd-ctl printed, and one of an earlier moment; when commands go to PD
    (s) and what, a command a line; whose policies; the seed; the picture; what "why" is about (``region 17``,
    ``operator 3``, ``store 4``, empty: the latest round); the player's step, 0 to :data:`STEPS`.
    """

    case: str
    own: str
    before: str
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
    moved: Callable[[], Figure]

    def moment(self, view: PdView) -> int:
        """Give the moment that the player is at, µs."""
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
    "what moved since before": lambda f, view: f.moved(),
}  # fmt: skip


# PD to try out: a reference case or one's own cluster, words to PD at a moment, and both futures.


_SAMPLES = 60
_LINE_PX = 21


def pd_panel(
    cases: Mapping[str, Case], *, policies: Mapping[str, Sequence[Policy]] | None = None,
    real: Callable[[str], Sequence[RealRun]] = lambda name: (), until_s: float | None = None,
    made_from: Mapping[str, Any] | None = None,
) -> Panel[PdView]:  # fmt: skip
    """Build a panel; each change of the words, the moment, the policy or the seed runs the case again.

    Parameters
    ----------
    cases
        Name to case, see :func:`ticdc_lab.simulate.pd.looking.tryout.reference_cases`.
    policies
        Name to schedulers that are compared with PD's own, which are always there.
    real
        Gives the real PD's runs of a case, by its name.
    until_s
        How long runs are at most, virtual seconds; by default as long as each case lasts at most.
    made_from
        How the panel can be made again, see :mod:`ticdc_lab.widgets.opening`.
    """
    known = {PD_ITSELF: DEFAULT_POLICIES, **(policies or {})}

    def run(name: str, own: str, seed: int, words: str, at_s: float, policy: str) -> Recording:
        found, changes = _case(cases, name, own), said(words, at_s=at_s)
        last_s = _last_s(found, until_s)
        if not own:
            return tried(
                found, seed=seed, changes=changes, policies=known[policy], until_s=last_s, samples=_SAMPLES
            )  # fmt: skip
        case = replace(found, most_us=round(last_s * 1e6))
        policies = () if policy == PD_ITSELF else known[policy]
        every_us = max(1_000_000, case.most_us // _SAMPLES)
        run = own_run(_loaded(own), case, changes, policies=policies, seed=seed, sample_us=every_us)
        return run.recorder.recording

    runs = Kept(run, most=16)

    def draw(view: PdView) -> Drawn:
        before, case, key = runs.made, _case(cases, view.case, view.own), (view.case, view.own, view.seed)
        one = runs.of(*key, "", 0.0, PD_ITSELF)
        changed = bool(said(view.words, at_s=view.at_s)) or view.policy != PD_ITSELF
        other = runs.of(*key, view.words, view.at_s, view.policy) if changed else one
        real_runs = () if view.own else tuple(real(view.case))
        futures = Futures(case, one, other, real_runs, lambda: _moved(view.before.strip(), view.own.strip()))
        done = AGAIN if runs.made > before else KEPT
        return Drawn(_with_refusals(PICTURES[view.picture](futures, view), other), done)

    controls = _controls(list(cases), list(known), _last_s(next(iter(cases.values())), until_s))

    def fit(change: Mapping[str, str]) -> None:
        controls["at_s"].max = _last_s(cases[change["new"]], until_s)

    controls["case"].observe(fit, names="value")
    return Panel(
        PdView, controls=controls, draw=draw, name="pd", slow=True, doing="PD runs", made_from=made_from,
        unfollowed=lambda view: () if view.picture == "why" else ("about",),
    )  # fmt: skip


def _last_s(case: Case, until_s: float | None) -> float:
    last_s = case.most_us / 1e6
    return last_s if until_s is None else min(until_s, last_s)


def _case(cases: Mapping[str, Case], name: str, own: str) -> Case:
    return own_case(_loaded(own.strip()), name=own.strip()) if own.strip() else cases[name]


@lru_cache(maxsize=3)
def _loaded(folder: str, control: str = "own") -> Loaded:
    with blamed_on(control):
        try:
            return from_folder(Path(folder).expanduser())
        except (OSError, ValueError) as error:
            hint = "Put what `pd-ctl store`, `region` and `config show all` print there."
            raise ControlError(control, f"{folder}: {error}", hint=hint) from error


def _moved(before: str, own: str) -> Figure:
    """Compare two moments of one's own cluster, as ``pd explain --before .. --after ..`` does."""
    if not before or not own:
        return sentence("Two folders are compared", "Give your own cluster, and before it one of an earlier moment.")
    with blamed_on("before"):
        return figures.moved_between(before_after(_loaded(before, "before"), _loaded(own)))


def _controls(cases: Sequence[str], policies: Sequence[str], last_s: float) -> dict[str, widgets.Widget]:
    hint = "store delete 4\nstore limit all 30\nconfig set replica-schedule-limit 8"
    return {
        "case": choice("case", cases, tip="A cluster to begin with"),
        "own": line("or your own", placeholder="folder with pd-ctl's JSON", width=WIDE, tip="store, region, .."),
        "before": line("and before", placeholder="folder of an earlier moment", width=WIDE, tip="what moved since"),
        "words": lines("pd-ctl", placeholder=hint, tip="Commands to PD, one a line"),
        "at_s": seconds("when, s", round(last_s / 10), last_s, step=1.0, tip="When they are sent"),
        "policy": choice("policy", policies, tip="Whose schedulers run from then on"),
        "about": line("why of", placeholder="region 17, operator 3, store 4", tip="What the picture `why` is about"),
        "seed": seed(1),
        "step": Player(STEPS),
        "picture": picture(PICTURES),
    }


def _with_refusals(fig: Figure, other: Recording) -> Figure:
    refused = [h.error for h in other.happened if h.error]
    if not refused:
        return fig
    said_no = wrapped(f"PD refuses: {label(refused[-1], most=120)}.", width=TITLE_CHARS)
    more_px = _LINE_PX * (1 + said_no.count("<br>"))
    meta = {**fig.layout.meta, "finding": f"PD refuses: {refused[-1]}. {fig.layout.meta['finding']}"}
    return fig.update_layout(
        title_text=f"{said_no}<br>{fig.layout.title.text}", meta=meta, height=int(fig.layout.height) + more_px,
        margin_t=int(fig.layout.margin.t) + more_px,
    )  # fmt: skip
