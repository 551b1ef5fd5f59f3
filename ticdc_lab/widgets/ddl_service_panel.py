"""A DDL service to try out, with faults on buttons; and the same pictures of one that really runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import ipywidgets as widgets
import pyarrow as pa
import traitlets

from ticdc_lab import figures
from ticdc_lab.ddl_core.fleet import Fleet, fleet_in
from ticdc_lab.figures.figure import Figure
from ticdc_lab.simulate.ddl_service.run import Incident
from ticdc_lab.widgets import controls
from ticdc_lab.widgets.composed import Player
from ticdc_lab.widgets.controls import picture, seed, slider
from ticdc_lab.widgets.drawing import Drawn
from ticdc_lab.widgets.panel import Panel
from ticdc_lab.widgets.runs import Ran, Runs


class Incidents(widgets.VBox):  # type: ignore[misc]
    """A button for each fault; the value is a tuple of (fault, node, moment in s), in the order of the presses.

    ``faults``: their names, also on the buttons. ``nodes``: which one it hits. ``until_s``: the end of the
    run.
    """

    value = traitlets.Tuple()

    def __init__(self, faults: Sequence[str], nodes: Sequence[str], *, until_s: float) -> None:
        self.node = controls.choice("worker", nodes, tip="The worker of the next fault")
        self.at_s = controls.seconds("when, s", round(until_s / 4, 1), until_s, tip="When the next fault happens")
        self.buttons = {
            name: widgets.Button(description=name, tooltip=f"add: {name}", layout={"width": "auto"}) for name in faults
        }
        self.undo = widgets.Button(icon="undo", tooltip="take the last one back", layout={"width": "38px"})
        self.clear = widgets.Button(icon="trash", tooltip="take all back", layout={"width": "38px"})
        self.told = widgets.Label()
        self.expects = f"triples of fault ({', '.join(faults)}), worker and second up to {until_s:g}"
        self._nodes, self._until_s = tuple(nodes), until_s
        bar = widgets.HBox([self.node, self.at_s], layout={"flex_flow": "row wrap"})
        presses = widgets.HBox([*self.buttons.values(), self.undo, self.clear], layout={"flex_flow": "row wrap"})
        super().__init__([bar, presses, self.told])
        for name, button in self.buttons.items():
            button.on_click(partial(self._add, name))
        self.undo.on_click(lambda _: self.set_trait("value", self.value[:-1]))
        self.clear.on_click(lambda _: self.set_trait("value", ()))
        self.observe(self._tell, names="value")

    @traitlets.validate("value")
    def _known(self, proposal: Any) -> tuple[tuple[str, str, float], ...]:
        incidents: tuple[tuple[str, str, float], ...] = proposal["value"]
        for fault, node, at_s in incidents:
            if fault not in self.buttons or node not in self._nodes or not 0 <= at_s <= self._until_s:
                raise traitlets.TraitError(self.expects)
        return incidents

    def _add(self, name: str, _: Any) -> None:
        self.value = (*self.value, (name, self.node.value, round(self.at_s.value, 3)))

    def _tell(self, change: Any) -> None:
        self.told.value = "; ".join(f"{at_s:g} s: {name} ({node})" for name, node, at_s in change["new"])


STEPS = 100
"""The last step of the player, which is the end of the run."""


@dataclass(frozen=True, slots=True)
class DdlServiceView:
    """What the panel shows.

    Workers and clusters, how long one tidb-server of the first cluster takes to load a schema (ms), the seed, the
    faults that were injected (name, worker, moment in s), the picture, and the player's step, 0 to :data:`STEPS`.
    """

    workers: int
    clusters: int
    load_ms: int
    seed: int
    faults: tuple[tuple[str, str, float], ...]
    picture: str
    step: int


@dataclass(frozen=True, slots=True)
class ServiceView:
    """What the panel of a running service shows: the picture; ``tick`` is how often it has looked."""

    picture: str
    tick: int


Simulate = Callable[[int, int, int, int], Ran]
"""Workers, clusters, load time of a server (ms) and seed to a run."""

Plan = Callable[[Sequence[Incident], int, int], Sequence[Any]]
"""Incidents, workers and clusters to faults."""


def ddl_service_panel(
    simulate: Simulate, *, faults: Sequence[str], plan: Plan, until_s: float = 20.0, most_workers: int = 8,
    most_clusters: int = 40, made_from: Mapping[str, Any] | None = None,
) -> Panel[DdlServiceView]:  # fmt: skip
    """Build a panel; each change of the service runs the model again, the first fault's moment is where it differs.

    Parameters
    ----------
    simulate
        See :data:`Simulate`; called once for each choice.
    faults
        Names on the buttons.
    plan
        See :data:`Plan`.
    until_s
        How long the runs are, virtual seconds.
    most_workers, most_clusters
        Ends of the sliders.
    made_from
        How the panel can be made again, see :mod:`ticdc_lab.widgets.opening`.
    """
    names = [f"ddl-service-node-{i + 1}" for i in range(most_workers)]
    controls = {
        "workers": slider("workers", 3, 1, most_workers, tip="How many workers of the service there are"),
        "clusters": slider("clusters", 6, 1, most_clusters, tip="How many clusters they serve"),
        "load_ms": slider("slow load, ms", 20, 20, 3000, tip="How long one tidb-server takes to load a schema"),
        "faults": Incidents(faults, names, until_s=until_s),
        "seed": seed(),
        "step": Player(STEPS),
        "picture": picture(_PICTURES),
    }

    def disturbing(size: tuple[int, ...], chosen: Sequence[tuple[str, str, float]]) -> tuple[int, Sequence[Any]]:
        known = set(names[: size[0]])
        incidents = [Incident(f, w if w in known else names[0], round(1e6 * at_s)) for f, w, at_s in chosen]
        return min(i.at_us for i in incidents), plan(incidents, size[0], size[1])

    runs: Runs[pa.Table] = Runs(simulate, disturbing=disturbing, seen=lambda run, _: run.trace)

    def draw(view: DdlServiceView) -> Drawn:
        trace, done = runs.look((view.workers, view.clusters, view.load_ms, view.seed), view.faults or None)
        at_us = round(1e6 * until_s * view.step / STEPS) if view.step else None
        return Drawn(_PICTURES[view.picture](trace, at_us), done)

    return Panel(
        DdlServiceView, controls=controls, draw=draw, name="ddl-service", slow=True, doing="the service runs",
        made_from=made_from,
    )  # fmt: skip


_PICTURES: Mapping[str, Callable[[pa.Table, int | None], Figure]] = {
    "assignment over time": lambda trace, at_us: figures.assignment_gantt(fleet_in(trace)),
    "fleet map": lambda trace, at_us: figures.fleet_map(fleet_in(trace), at_us=at_us),
    "the index job": lambda trace, at_us: figures.schema_timeline(trace, job=1),
    "the column job": lambda trace, at_us: figures.schema_timeline(trace, job=2),
}


def service_panel(look: Callable[[], Fleet], *, interval_ms: int = 1000) -> Panel[ServiceView]:
    """Build a panel of a service that really runs: it looks at each tick while it plays.

    Parameters
    ----------
    look
        Asks the service once more and gives the fleet since the first time
        (:meth:`ticdc_lab.ddl_service.watch.ServiceWatch.look`).
    interval_ms
        Between two looks.
    """
    controls = {
        "tick": widgets.Play(value=0, min=0, max=1 << 30, step=1, interval=interval_ms),
        "picture": picture(_LIVE),
    }

    def draw(view: ServiceView) -> Drawn:
        return Drawn(_LIVE[view.picture](look()), "the service was queried")

    return Panel(ServiceView, controls=controls, draw=draw, name="service", doing="the service is queried")


_LIVE: Mapping[str, Callable[[Fleet], Figure]] = {
    "fleet map": figures.fleet_map,
    "assignment over time": figures.assignment_gantt,
}
