"""The panels of DDL as a Service, headless: buttons inject faults, pictures answer, a service that is gone is words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ticdc_lab.ddl_core.settings import Duties
from ticdc_lab.ddl_service import Listening, running
from ticdc_lab.ddl_service.client import Client, ServiceError
from ticdc_lab.ddl_service.sqlite_store import SqliteStore
from ticdc_lab.ddl_service.watch import fleet_watch, settled
from ticdc_lab.simulate.ddl_service.run import ADD, FAULTS, SPARE, Incident, faults_of, tried
from ticdc_lab.simulate.faults import Join
from ticdc_lab.widgets import DdlServiceView, Panel, ServiceView, ddl_service_panel, service_panel

UNTIL_S = 16.0


@pytest.fixture(scope="module")
def panel() -> Panel[DdlServiceView]:
    """A panel over the model."""
    return ddl_service_panel(tried(UNTIL_S), faults=tuple(FAULTS), plan=faults_of, until_s=UNTIL_S)


def finding(panel: Any) -> str:
    """Give the title."""
    return str(panel.figure.layout.meta["finding"])


def test_a_press_injects_a_fault_and_undo_takes_it_back(panel: Panel[DdlServiceView]) -> None:
    """The worker and the moment are those beside the buttons; what was before stays the same."""
    faults: Any = panel.controls["faults"]
    panel.value = replace(panel.value, picture="assignment over time", faults=())
    before = finding(panel)
    faults.node.value, faults.at_s.value = "ddl-service-node-2", 5.0
    faults.buttons["kill"].click()
    assert panel.value.faults == (("kill", "ddl-service-node-2", 5.0),)
    assert "ownership changes 2 times" in finding(panel) != before
    faults.buttons[ADD].click()
    assert faults.told.value == f"5 s: kill (ddl-service-node-2); 5 s: {ADD} (ddl-service-node-2)"
    faults.undo.click()
    faults.undo.click()
    assert panel.value.faults == () and finding(panel) == before


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_is_survived(panel: Panel[DdlServiceView], fault: str) -> None:
    """What is pressed, every cluster is owned at the end, and the picture answers."""
    panel.value = replace(
        panel.value, faults=((fault, "ddl-service-node-1", 3.2),), picture="fleet map", step=100
    )  # fmt: skip
    assert "own 6 clusters" in finding(panel) and "without owner" not in finding(panel)


def test_every_picture_answers(panel: Panel[DdlServiceView]) -> None:
    """With a slow server the index job takes longer, and its picture shows for whom it waits."""
    for picture in panel.controls["picture"].options:
        panel.value = replace(panel.value, picture=picture, faults=(), step=50, load_ms=20)
        assert finding(panel) and panel.figure.data
    panel.value = replace(panel.value, picture="the index job", load_ms=1000)
    assert finding(panel).endswith("waits for cluster1/tidb-2")
    panel.value = replace(panel.value, load_ms=20)


def test_workers_can_be_added_as_many_as_are_spare() -> None:
    """The n-th press adds the n-th one, and no more than there are."""
    added = [Incident(ADD, "ddl-service-node-1", i) for i in range(SPARE + 1)]
    found = [f.node for f in faults_of(added, 3, 6) if isinstance(f, Join)]
    assert found == ["ddl-service-node-4", "ddl-service-node-5"]


def test_the_same_pictures_attach_to_a_running_service(tmp_path: Path) -> None:
    """Each tick asks its API again; when no worker answers any more it is reported."""
    with running("node-a", SqliteStore(tmp_path), Listening(port=0), Duties(tick_us=50_000)) as port:
        client = Client(f"http://127.0.0.1:{port}")
        watch = fleet_watch(client)
        watch.until(settled(workers=1))
        client.register("c1", "tikv://one:2379")
        panel: Panel[ServiceView] = service_panel(watch.look)
        watch.until(settled(workers=1))
        with pytest.raises(ServiceError, match="1 workers own 1 of 1 clusters; expected 2 workers and all"):
            watch.until(settled(workers=2), within_s=0.3)
        looks = len(watch.answers)
        panel.value = replace(panel.value, tick=1)
        assert finding(panel).endswith("s, 1 worker owns 1 cluster, 1 each") and len(watch.answers) == looks + 1
        panel.value = replace(panel.value, tick=2, picture="assignment over time")
        assert finding(panel).startswith("1 cluster has an owner")
    panel.value = replace(panel.value, tick=3)
    assert panel.problem is not None and panel.problem.message, "no worker answers"
    assert finding(panel).startswith("1 cluster has an owner"), "the last figure stays"
    assert len(watch.answers) == looks + 2
