"""PD to try out: a reference case or one's own cluster, words to PD at a moment, and both futures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import ipywidgets as widgets

from ticdc_lab.figures.figure import Figure
from ticdc_lab.figures.theme import TITLE_CHARS, label, wrapped
from ticdc_lab.simulate.pd.looking.recording import Recording
from ticdc_lab.simulate.pd.looking.tryout import RealRun, own_case, said, tried
from ticdc_lab.simulate.pd.pd_ctl_json import from_pd_ctl
from ticdc_lab.simulate.pd.world.pd_policies import DEFAULT_POLICIES
from ticdc_lab.simulate.pd.world.policy import Policy
from ticdc_lab.simulate.pd.world.reference import Case
from ticdc_lab.widgets.composed import Player
from ticdc_lab.widgets.controls import WIDE, choice, line, lines, picture, seconds, seed
from ticdc_lab.widgets.drawing import Drawn
from ticdc_lab.widgets.panel import Panel
from ticdc_lab.widgets.pd_pictures import PD_ITSELF, PICTURES, STEPS, Futures, PdView
from ticdc_lab.widgets.problem import ControlError, blamed_on
from ticdc_lab.widgets.runs import AGAIN, KEPT, Kept

_SAMPLES = 60
_LINE_PX = 21
_FILES = ("stores.json", "regions.json", "config.json", "rules.json")


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
        How the panel can be made anew, see :mod:`ticdc_lab.widgets.opening`.
    """
    known = {PD_ITSELF: DEFAULT_POLICIES, **(policies or {})}

    def run(name: str, own: str, seed: int, words: str, at_s: float, policy: str) -> Recording:
        found, changes = _case(cases, name, own), said(words, at_s=at_s)
        return tried(
            found, seed=seed, changes=changes, policies=known[policy], until_s=_last_s(found, until_s),
            samples=_SAMPLES,
        )  # fmt: skip

    runs = Kept(run, most=16)

    def draw(view: PdView) -> Drawn:
        before, case, key = runs.made, _case(cases, view.case, view.own), (view.case, view.own, view.seed)
        one = runs.of(*key, "", 0.0, PD_ITSELF)
        changed = bool(said(view.words, at_s=view.at_s)) or view.policy != PD_ITSELF
        other = runs.of(*key, view.words, view.at_s, view.policy) if changed else one
        futures = Futures(case, one, other, () if view.own else tuple(real(view.case)))
        done = AGAIN if runs.made > before else KEPT
        return Drawn(_with_refusals(PICTURES[view.picture](futures, view), other), done)

    controls = _controls(list(cases), list(known), _last_s(next(iter(cases.values())), until_s))

    def fit(change: Mapping[str, str]) -> None:
        controls["at_s"].max = _last_s(cases[change["new"]], until_s)

    controls["case"].observe(fit, names="value")
    return Panel(PdView, controls=controls, draw=draw, name="pd", slow=True, doing="PD runs", made_from=made_from)


def _last_s(case: Case, until_s: float | None) -> float:
    last_s = case.most_us / 1e6
    return last_s if until_s is None else min(until_s, last_s)


def _case(cases: Mapping[str, Case], name: str, own: str) -> Case:
    return _own(own.strip()) if own.strip() else cases[name]


@lru_cache(maxsize=2)
def _own(folder: str) -> Case:
    paths = [Path(folder).expanduser() / name for name in _FILES]
    config, rules = (p if p.exists() else None for p in paths[2:])
    with blamed_on("own"):
        try:
            return own_case(from_pd_ctl(paths[0], paths[1], config, rules), name=folder)
        except (OSError, ValueError) as error:
            raise ControlError("own", f"{folder}: {error}", hint=f"Put {', '.join(_FILES)} there.") from error


def _controls(cases: Sequence[str], policies: Sequence[str], last_s: float) -> dict[str, widgets.Widget]:
    hint = "store delete 4\nstore limit all 30\nconfig set replica-schedule-limit 8"
    return {
        "case": choice("case", cases, tip="A cluster to begin with"),
        "own": line("or your own", placeholder="folder with pd-ctl's JSON", width=WIDE, tip=", ".join(_FILES)),
        "words": lines("pd-ctl", placeholder=hint, tip="What is said to PD, a command a line"),
        "at_s": seconds("when, s", round(last_s / 10), last_s, step=1.0, tip="When it is said"),
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
