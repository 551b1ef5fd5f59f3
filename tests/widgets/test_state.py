"""What is saved opens again as it was; what cannot is reported with the name of the field."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from conftest import ROOT, golden
from summaries import summary

from ticdc_lab.cli import main, open_commands
from ticdc_lab.errors import SourceError
from ticdc_lab.events.sample import Sample
from ticdc_lab.sources.origin import Origin
from ticdc_lab.widgets import ddl_service_tryout, log_panel, open_state, scheduler_tryout
from ticdc_lab.widgets.state import StateError


def test_a_state_is_small_json_and_opens_again(tmp_path: Path) -> None:
    """Every field of the value, the panel's kind, the versions; the same figure."""
    panel = log_panel(summary())
    panel.value = replace(panel.value, time_range=(0.0, 5.0), tables=("shop.orders",), picture="load by table")
    panel.save(tmp_path / "a.json")
    told = json.loads((tmp_path / "a.json").read_text())
    cut = {"time_range": [0.0, 5.0], "tables": ["shop.orders"], "partition": None}
    assert told["value"] == cut | {"picture": "load by table"}
    assert (told["format"], told["panel"], told["made_from"]) == (1, "log", None)
    assert len((tmp_path / "a.json").read_text()) < 1000
    other = log_panel(summary())
    other.open(tmp_path / "a.json")
    assert other.value == panel.value and other.figure.to_json() == panel.figure.to_json()


EARLIER: dict[str, dict[str, Any]] = json.loads((ROOT / "tests/data/formats/states_1.json").read_text())
"""What the commit ad588b8 saved of each kind of panel."""


@pytest.mark.parametrize("name", EARLIER)
def test_a_state_of_an_earlier_version_opens(name: str, tmp_path: Path) -> None:
    """With every value that it shows; of a log where the recording lies beside it."""
    state = EARLIER[name]
    if name == "log":
        panel: Any = log_panel(summary())
        panel.open(state)
    else:
        shutil.copy(golden("messages_canal-json-tidb_small.jsonl.gz"), tmp_path)
        (tmp_path / "state.json").write_text(json.dumps(state))
        panel = open_state(tmp_path / "state.json")
    if name == "workbench":  # of whose panels it keeps the ones that were changed
        opened = {name: panel.panels[name].state()["value"] for name in state["value"]["panels"]}
        told = state["value"]["panels"]
        assert {name: {k: opened[name][k] for k in of} for name, of in told.items()} == told
        assert opened["messages"]["page"] == 1, "a control that was not there then stands where it begins"
        state = {**state, "value": {**state["value"], "panels": panel.state()["value"]["panels"]}}
    assert (panel.state()["format"], panel.state()["value"]) == (state["format"], state["value"])


def changed(**more: Any) -> dict[str, Any]:
    """A state with something else in it."""
    return {**log_panel(summary()).state(), **more}


VALUE = {"time_range": [0.0, 9.0], "tables": [], "partition": None, "picture": "lag"}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"format": 2}, "expected format 1, found 2"),
        ({"panel": "what-if"}, "`what-if`; expected `log`"),
        ({"value": [1]}, "is no state of a panel"),
        ({"made_from": ["x"]}, "made_from is neither"),
        (None, "is no state of a panel: expected ticdc_lab, format, panel"),
        ({"value": {"picture": "lag"}}, "is missing partition, tables, time_range"),
        ({"value": VALUE | {"zoom": 1}}, "has unknown zoom"),
        (
            {"value": VALUE | {"picture": "a cat"}},
            '`picture` cannot be "a cat"; expected one of "watermark ladder"',
        ),
        ({"value": VALUE | {"tables": ["shop.cats"]}}, '`tables` cannot be ["shop.cats"]'),
        ({"value": VALUE | {"tables": 5}}, "`tables` cannot be 5"),
        ({"value": VALUE | {"time_range": [0.0, 900.0]}}, "`time_range` cannot be [0.0, 900.0]; expected a number"),
        ({"value": VALUE | {"time_range": "now"}}, '`time_range` cannot be "now"'),
    ],
)
def test_a_planted_fault_is_named(more: dict[str, Any] | None, said: str) -> None:
    """And the panel is as it was."""
    panel = log_panel(summary())
    panel.value = replace(panel.value, tables=("shop.orders",))
    before, figure = panel.value, panel.figure
    with pytest.raises(StateError) as error:
        panel.open({"value": {}} if more is None else changed(**more))
    assert said in error.value.message and error.value.hint
    assert panel.value == before and panel.figure is figure


def test_a_file_that_is_none_is_said(tmp_path: Path) -> None:
    """Missing, or no JSON."""
    with pytest.raises(StateError, match="cannot be read"):
        open_state(tmp_path / "none.json")
    (tmp_path / "half.json").write_text('{"ticdc_lab":')
    with pytest.raises(StateError, match="is no JSON"):
        open_state(tmp_path / "half.json")


def test_the_page_saves_and_opens(monkeypatch: pytest.MonkeyPatch) -> None:
    """The button offers the file; one that does not fit is words above the figure."""
    panel, sent = log_panel(summary()), list[Any]()
    monkeypatch.setattr(panel.view, "send", lambda message, buffers=None: sent.append(message))
    panel.view._hear(None, {"kind": "save"}, [])
    assert sent[0]["name"] == "log.state.json" and json.loads(sent[0]["text"]) == panel.state()
    other = sent[0]["text"].replace("watermark ladder", "lag")
    panel.view._hear(None, {"kind": "open", "name": "x.json", "text": other}, [])
    assert panel.value.picture == "lag"
    panel.view._hear(None, {"kind": "open", "name": "x.json", "text": "{"}, [])
    assert panel.view.problem["message"].startswith("x.json is no JSON") and panel.value.picture == "lag"
    panel.view._hear(None, {"kind": "open", "name": "x.json", "text": "[]"}, [])
    assert panel.view.problem["message"].startswith("x.json is no state of a panel")


def test_a_panel_made_by_code_is_opened_in_one_alone() -> None:
    """No state keeps code."""
    with pytest.raises(StateError, match="was made by code"):
        open_state(log_panel(summary()).state())


def test_a_simulated_cluster_opens_anywhere(tmp_path: Path) -> None:
    """Also from the command line: the same finding, as a page, as a notebook."""
    panel = scheduler_tryout(4.0)
    panel.value = replace(panel.value, variant="v3", fault="crash", node="capture-2", picture="who owns what")
    panel.save(tmp_path / "s.json")
    page, book = tmp_path / "page.html", tmp_path / "book.ipynb"
    result = CliRunner().invoke(main, ["open", str(tmp_path / "s.json"), "--out", str(page)])
    assert result.exit_code == 0, result.output
    assert str(panel.figure.layout.meta["finding"]) in result.stdout and "variant: v3" in result.stdout
    html = page.read_text()
    assert "capture-2" in html and "plotly.js v" in html and "<script src=" not in html
    assert CliRunner().invoke(main, ["open", str(tmp_path / "s.json"), "--out", str(book)]).exit_code == 0
    assert "open_state(" in book.read_text()


def test_what_it_is_made_from_now_is_said() -> None:
    """A state that is opened on something else shows on what it was saved."""
    panel = scheduler_tryout(4.0)
    panel.open(panel.state())
    assert "saved with" not in panel.view.status
    panel.open({**panel.state(), "made_from": {"until_s": 9.0}})
    assert panel.view.status.endswith("; saved with until_s 9.0, here it is 4.0")


def test_incidents_are_checked() -> None:
    """Faults and workers that there are."""
    panel = ddl_service_tryout(8.0)
    state = panel.state()
    state["value"]["faults"] = [["kill", "ddl-service-node-2", 3.0]]
    panel.open(state)
    assert panel.value.faults == (("kill", "ddl-service-node-2", 3.0),)
    state["value"]["faults"] = [["sing", "ddl-service-node-2", 3.0]]
    with pytest.raises(StateError, match="`faults` cannot be"):
        panel.open(state)


def test_the_command_says_what_is_wrong(tmp_path: Path) -> None:
    """In words, with code 2."""
    (tmp_path / "x.json").write_text(json.dumps(changed(format=3)))
    result = CliRunner().invoke(main, ["open", str(tmp_path / "x.json")])
    assert result.exit_code == 2 and "expected format 1, found 3" in result.output


def test_an_origin_keeps_no_secret(tmp_path: Path) -> None:
    """Their names are kept; without their values it is not loaded, with them it is."""
    options = {"kafka.sasl.jaas.config": 'x password="y"', "startingOffsets": "earliest"}
    origin = Origin("kafka://h:1/t", options=options, sample=Sample(("shop.orders",), from_ms=5))
    told = json.loads(json.dumps(origin.as_dict()))
    assert told["options"] == {"startingOffsets": "earliest"} and "y" not in json.dumps(told["options"])
    with pytest.raises(SourceError, match=r"kafka\.sasl\.jaas\.config, which no state keeps"):
        Origin.from_dict(told)
    again = Origin.from_dict(told, options={"kafka.sasl.jaas.config": options["kafka.sasl.jaas.config"]})
    assert again == origin
    assert Origin(str(tmp_path.relative_to(tmp_path.anchor))).as_dict()["source"].startswith("/")


def test_a_state_that_does_not_say_its_source_is_refused() -> None:
    """In words, no matter which program wrote it."""
    with pytest.raises(SourceError, match="`source` is a text"):
        Origin.from_dict({"source": None})


def test_a_notebook_of_no_state_is_not_written(tmp_path: Path) -> None:
    """Nor one that would lose settings of the source."""
    book = tmp_path / "a.ipynb"
    result = CliRunner().invoke(main, ["open", str(tmp_path / "none.json"), "--out", str(book)])
    assert result.exit_code == 2 and "cannot be read" in result.stderr and not book.exists()
    log_panel(summary()).save(tmp_path / "a.json")
    result = CliRunner().invoke(main, ["open", str(tmp_path / "a.json"), "--out", str(book), "--option", "a=b"])
    assert result.exit_code == 2 and "keeps no a" in result.stderr and not book.exists()


def test_a_page_of_a_sample_says_what_that_cannot_prove() -> None:
    """As every other answer from one does; of a whole log, or of none, there is nothing to show."""
    told = Origin("a.jsonl", sample=Sample(("shop.orders",), from_ms=5)).as_dict()
    (said,) = open_commands._unproved({"made_from": json.loads(json.dumps(told))})
    assert said.startswith("This is a sample: row changes of shop.orders from 1970")
    assert open_commands._unproved({"made_from": Origin("a.jsonl").as_dict()}) == ()
    assert open_commands._unproved({"made_from": None}) == ()


def test_the_name_of_a_table_stays_a_name() -> None:
    """It is no path, so it is not made one."""
    assert Origin("lake.orders", source_kind="table").as_dict()["source"] == "lake.orders"


def test_a_password_in_a_url_is_kept_by_no_state() -> None:
    """The registry's, for one; it is given again by its name."""
    url = "http://me:sesame@registry:8081"
    told = Origin("kafka://h:1/t", schema_registry=url).as_dict()
    assert "sesame" not in json.dumps(told)
    assert (told["schema_registry"], told["left_out"]) == ("http://registry:8081", ["schema_registry"])
    with pytest.raises(SourceError, match="schema_registry, which no state keeps"):
        Origin.from_dict(told)
    again = Origin.from_dict(told, options={"schema_registry": url})
    assert (again.schema_registry, again.options) == (url, {})
