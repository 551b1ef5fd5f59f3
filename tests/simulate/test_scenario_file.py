"""Scenario files: what they show is read, and every mistake is reported with its line."""

from __future__ import annotations

import pickle
import re
from dataclasses import fields
from fractions import Fraction
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from ticdc_lab.errors import ScenarioError
from ticdc_lab.simulate.planned import Delay, EventKind, LinkSettings, Node, Planned, RandomFaults, spelled, table
from ticdc_lab.simulate.reading import duration_us, shown, yaml_name
from ticdc_lab.simulate.scenario import MODELS, Scenario, model_named, read_scenario, scenario_from_text, schema
from ticdc_lab.simulate.scheduler.model import MODEL
from ticdc_lab.simulate.scheduler.scenario import ClusterTable, SchedulerCluster
from ticdc_lab.simulate.swarm import swarm

WHOLE = """\
model: scheduler
name: whole
variant: v2
seed: 7
until: 1m
step_limit: 5000
cluster:
  captures: [north, south]
  tables: [1, {id: 2, traffic: 50}]
  versions: {south: v6.1.0}
network:
  delay: [1ms, 5ms]
  loss: 2.5%
  reorder: 0.001
  transport: datagram
  links:
    - {from: north, to: etcd, delay: 3ms, loss: 1}
events:
  - {at: 9s, crash: south}
  - {at: 3s, name: cut, partition: [north], from: south, one_way: true, for: 1.5s}
  - {at: 3s, lose: DispatchTable, to: north, count: 2}
  - {at: 4s, add_table: 3}
  - {at: 4s, join: west}
  - {at: 5s, move_table: 3, to: west}
  - {at: 5s, rebalance: }
  - {at: 5s, heal: }
  - {at: 6s, link: west, to: north, delay: {mean: 4ms, least: 1ms}}
  - random: {faults: [crash, part], every: 2s, from: 10s, until: 40s}
assert:
  - {eventually: every table replicates}
  - {always: no double write}
  - {within: 5s, after: cut, holds: table 3 on west}
  - {within: 5s, after: faults, holds: global checkpoint lag < 2.5s}
  - {at_most: 20, of: DispatchTable messages, from: 10s, for: 30s}
"""


def scenario(*lines: str) -> Scenario:
    """A scenario of three captures and four tables, with more lines: they begin in line 4."""
    head = ["model: scheduler", "until: 20s", "cluster: {captures: 3, tables: 4}"]
    return scenario_from_text("\n".join([*head, *lines]), "file.yaml")


def test_every_section_is_read_exactly() -> None:
    """Names, durations as µs, probabilities as fractions, events by time."""
    read = scenario_from_text(WHOLE)
    assert (read.name, read.variant, read.seed, read.until_us, read.step_limit) == ("whole", "v2", 7, 60_000_000, 5000)
    assert read.cluster == SchedulerCluster(
        ("north", "south"), (ClusterTable(1), ClusterTable(2, 50)), (("south", "v6.1.0"),)
    )
    assert (read.network.loss, read.network.reorder) == (Fraction(1, 40), Fraction(1, 1000))
    assert (read.network.delay, read.network.transport) == (Delay("uniform", 1_000, 5_000), "datagram")
    assert read.network.links == (LinkSettings("north", "etcd", Delay("fixed", 3_000, 3_000), Fraction(1)),)
    assert [(e.at_us // 1_000_000, e.what) for e in read.events] == [
        (3, MODEL.events["partition"](("north",), ("south",), True, 1_500_000)),
        (3, MODEL.events["lose"]("DispatchTable", to="north", count=2)),
        (4, MODEL.events["add_table"](3)),
        (4, MODEL.events["join"]("west")),
        (5, MODEL.events["move_table"](3, "west")),
        (5, MODEL.events["rebalance"]()),
        (5, MODEL.events["heal"]()),
        (6, MODEL.events["link"]("west", "north", Delay("exponential", 1_000, 3_000))),
        (9, MODEL.events["crash"]("south")),
    ]
    assert [e.name for e in read.events][:3] == ["cut", "lose DispatchTable", "add_table 3"]
    assert read.random == (RandomFaults(("crash", "part"), 2_000_000, 40_000_000, 10_000_000, 28),)
    assert [a.text for a in read.assertions] == [
        "eventually: every table replicates",
        "always: no double write",
        "within 5s after cut: table 3 on west",
        "within 5s after faults: global checkpoint lag < 2.5s",
        "at most 20 DispatchTable messages (from 10s to 40s)",
    ]
    windows = [(a.from_us // 1_000_000, a.until_us // 1_000_000) for a in read.assertions[2:]]
    assert windows == [(3, 8), (40, 45), (10, 40)]


def test_what_is_left_out_has_a_default() -> None:
    """Captures and tables are enough."""
    read = scenario()
    assert read.cluster.captures == ("capture-1", "capture-2", "capture-3")
    assert [t.id for t in read.cluster.tables] == [1, 2, 3, 4]
    assert read.settings == read.model.settings() and read.events == () and read.name == "file"


def test_a_scenario_travels_to_another_process() -> None:
    """Spark's workers get it pickled, with its assertions."""
    read = scenario("assert: [{eventually: there is an owner}]")
    there = pickle.loads(pickle.dumps(read))
    assert (there.cluster, there.file, there.assertions[0].text) == (
        read.cluster,
        "file.yaml",
        "eventually: there is an owner",
    )


@pytest.mark.parametrize("model", MODELS)
def test_what_plays_a_scenario_travels_to_another_process(model: str) -> None:
    """By its name: a pool of processes can be given it."""
    play = model_named(model).play
    assert pickle.loads(pickle.dumps(play)) is play


def test_settings_are_those_of_the_model() -> None:
    """Names come from the dataclass; one that ends in _us is a duration."""
    read = scenario("settings:", "  pace: {prepare: 1s, catch_up: 3}")
    assert (read.settings.pace.prepare_us, read.settings.pace.catch_up) == (1_000_000, 3)
    assert read.settings.pace.stop_us == read.model.settings().pace.stop_us


EVENT, ASSERT = "events: [{at: 1s, %s}]", "assert: [{%s}]"
MISTAKES = {
    "an unknown field": (["sed: 3"], 4, "expected a known field; found sed", "Did you mean seed?"),
    "a field that stands twice": (["seed: 3", "seed: 4"], 5, "found seed again, first in line 4", ""),
    "a seed that is no number": (["seed: x"], 4, "expected a whole number from 0 on at seed; found x", ""),
    "a variant that is not there": (["variant: v5"], 4, "expected a variant at variant; found v5", "Known: v2"),
    "a negative delay": (["network:", "  delay: -5ms"], 5, "a duration such as 200ms or 3s", "cannot be negative"),
    "a delay without unit": (["network: {delay: 5}"], 4, "a duration such as 200ms", "Units: us, ms"),
    "a delay range that falls": (["network: {delay: [5ms, 1ms]}"], 4, "two rising durations", ""),
    "a loss above 1": (["network:", "", "  loss: 1.5"], 6, "a probability from 0 to 1 at network.loss; found 1.5", ""),
    "a loss below 0": (["network: {loss: -0.1}"], 4, "a probability from 0 to 1", ""),
    "a link to nowhere": (["network: {links: [{from: etcd, to: x}]}"], 4, "a node of the cluster", "capture-1"),
    "a transport that is not there": (["network: {transport: udp}"], 4, "expected a transport", "datagram, resend"),
    "a setting that is not there": (["settings: {tik: 1s}"], 4, "a known field of settings; found tik", "tick"),
    "a setting of another type": (["settings: {pace: {catch_up: fast}}"], 4, "a whole number", ""),
    "a field that nothing reads": (["plot: [pie]"], 4, "expected a known field; found plot", "Known here: "),
    "a section of another form": (["events: 3"], 4, "expected a list at events; found 3", "- `"),
    "a capture twice": (["network: [1]"], 4, "expected fields with names at network; found a list", ""),
    "a fault on a node that is not there": (
        ["events:", "  - at: 1s", "    crash: capture-9"], 6, "at events[0].crash; found capture-9",
        "Did you mean capture-",
    ),
    "a fault on a node that comes later": (
        ["events:", "  - {at: 5s, join: west}", "  - {at: 1s, crash: west}"], 6,
        "expected something that is there at 1s; found west, which comes at 5s", "later",
    ),
    "a node that is there twice": ([EVENT % "join: capture-1"], 4, "a name that no other node has", ""),
    "a table that is not there": ([EVENT % "stuck_table: 5"], 4, "expected a table of the cluster", "add_table"),
    "an event after the end": ([EVENT.replace("1s", "21s") % "heal: "], 4, "a moment within the run", "until"),
    "an event without a moment": (["events: [{crash: capture-1}]"], 4, "expected a field at of events[0]", ""),
    "an event without a name": ([EVENT % "for: 1s"], 4, "expected one event at events[0]; found none", "crash"),
    "two events in one": ([EVENT % "crash: capture-1, drain: capture-1"], 4, "found crash, drain", ""),
    "an event that is not there": ([EVENT % "crush: capture-1"], 4, "a known field", "Did you mean crash?"),
    "a field of another event": ([EVENT % "crash: capture-1, count: 2"], 4, "expected a field of crash", "none"),
    "an event that lacks a field": ([EVENT % "move_table: 1"], 4, "expected a field to of move_table", ""),
    "a message that is not there": ([EVENT % "lose: Heartbeat"], 4, "a message of this variant", "Announce"),
    "no message lost": ([EVENT % "lose: Sync, count: 0"], 4, "a whole number from 1 on", ""),
    "something beside rebalance": ([EVENT % "rebalance: 3"], 4, "nothing beside rebalance", ""),
    "random faults of no kind": (["events: [{random: {faults: [], every: 1s}}]"], 4, "at least one fault", ""),
    "random faults that end first": (
        ["events: [{random: {faults: [crash], every: 1s, from: 3s, until: 2s}}]"], 4, "begin before they end", ""),
    "a random fault that is not there": (["events: [{random: {faults: [ddl], every: 1s}}]"], 4, "at random", ""),
    "an assertion without mode": ([ASSERT % "holds: no violation"], 4, "one mode of an assertion", "eventually"),
    "an assertion of two modes": ([ASSERT % "always: no violation, at_most: 3"], 4, "found always, at_most", ""),
    "a sentence that is not known": ([ASSERT % "always: all is well"], 4, "a sentence of the vocabulary", "imbalance"),
    "a subject that is not there": ([ASSERT % "always: table 9 replicates"], 4, "one table that is there",
                                   "1, 2, 3, 4"),
    "a capture that is not there": ([ASSERT % "eventually: owner is x"], 4, "the name of one capture", "capture-1"),
    "an invariant that is not there": ([ASSERT % "always: Luck is violated"], 4, "the name of one invariant", "Double"),
    "a limit without unit": ([ASSERT % "always: global checkpoint lag < 5"], 4, "a duration beside global", "200ms"),
    "a limit that is no number": ([ASSERT % "always: imbalance < 5s"], 4, "expected a number beside imbalance", ""),
    "a measure that is not there": ([ASSERT % "at_most: 3, of: pizzas"], 4, "something that can be measured", ""),
    "a count of nothing": ([ASSERT % "at_most: 3"], 4, "expected a field of beside at_most", ""),
    "longer than the run": ([ASSERT % "within: 21s, holds: no violation"], 4, "a time that ends within the run", ""),
    "longer than what is left": (
        ["events: [{at: 18s, crash: capture-1}]", ASSERT % "within: 3s, after: crash capture-1, holds: no violation"],
        5, "a time that ends within the run", "until",
    ),
    "after what does not happen": (
        [EVENT % "crash: capture-1", ASSERT % "within: 3s, after: crash capture-2, holds: no violation"],
        5, "an event of this scenario, which would happen", "Did you mean crash capture-1?",
    ),
    "after one of several": (
        ["events:", "  - {at: 1s, heal: }", "  - {at: 2s, heal: }", ASSERT % "always: no violation, after: heal"],
        7, "one event (there are several, lines 5 and 6)", "name",
    ),
    "after faults without any": ([ASSERT % "always: no violation, after: faults"], 4, "an event of this scenario", ""),
    "from the end on": ([ASSERT % "always: no violation, from: 20s"], 4, "a moment before the end of the run", ""),
    "for no time": ([ASSERT % "always: no violation, for: 0s"], 4, "a time above 0", ""),
    "a mode's field elsewhere": ([ASSERT % "eventually: no violation, from: 1s"], 4, "a field of eventually", "none"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_with_its_line(mistake: str) -> None:
    """What was expected, what was found and what to do."""
    lines, line, message, hint = MISTAKES[mistake]
    with pytest.raises(ScenarioError) as caught:
        scenario(*lines)
    assert caught.value.message.startswith(f"file.yaml:{line}: expected ")
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_a_node_of_another_kind_is_no_near_name() -> None:
    """``store-1`` has the ending of ``capture-1``, and is not a slip of it: the known names follow."""
    with pytest.raises(ScenarioError) as caught:
        scenario("events:", "  - at: 1s", "    crash: store-1")
    assert caught.value.hint.startswith("Known: ") and "capture-1" in caught.value.hint


WRONG_FILES = {
    "no YAML": ("model: scheduler\ncluster: {captures: 3\nuntil: 3s\n", 3, "expected YAML"),
    "a tab": ("model: scheduler\n\tuntil: 3s\n", 2, "expected YAML"),
    "a control character": ("model: scheduler\nname: \x07\n", 2, "expected YAML"),
    "nothing": ("", 1, "found an empty file"),
    "comments alone": ("# a scenario\n\n", 1, "found an empty file"),
    "two documents": ("model: scheduler\n---\nmodel: scheduler\n", 3, "found a second document"),
    "a list": ("- model\n", 1, "expected fields with names; found a list"),
    "a word": ("model\n", 1, "expected fields with names; found model"),
    "nothing within nothing": ("[" * 5000, 1, "lists within lists"),
    "an object": ("model: !!python/object/apply:os.getcwd []\ncluster: {}\n", 1, "expected a text"),
    "a tagged text": ("model: !secret scheduler\ncluster: {}\n", 1, "expected a value without a tag"),
    "no cluster": ("# my first\nmodel: scheduler\n", 2, "expected a field cluster"),
    "no such model": ("model: schedular\ncluster: {}\n", 1, "expected a model at model; found schedular"),
    "no captures": ("model: scheduler\ncluster:\n  captures: 0\n  tables: 1\n", 3, "a whole number from 1 to 1000"),
    "too many tables": ("model: scheduler\ncluster: {captures: 1, tables: 2_000_001}\n", 2, "from 0 to 2000000"),
    "a table twice": ("model: scheduler\ncluster:\n  captures: 1\n  tables:\n    - 4\n    - {id: 4}\n", 6, "4 again"),
    "a capture twice": ("model: scheduler\ncluster: {captures: [a, a], tables: 1}\n", 2, "found a again"),
    "a capture called etcd": ("model: scheduler\ncluster: {captures: [etcd], tables: 1}\n", 2, "found etcd again"),
    "a capture with a dot": ("model: scheduler\ncluster: {captures: [a.1], tables: 1}\n", 2, "expected a name"),
    "a version of nobody": (
        "model: scheduler\ncluster: {captures: 1, tables: 1, versions: {b: v1}}\n", 2, "a capture of the cluster"),
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG_FILES)
def test_a_file_that_is_no_scenario_is_told_with_its_line(wrong: str) -> None:
    """Before any section is looked at, or in the first ones."""
    text, line, message = WRONG_FILES[wrong]
    with pytest.raises(ScenarioError) as caught:
        scenario_from_text(text, "file.yaml")
    assert caught.value.message.startswith(f"file.yaml:{line}: ")
    assert message in caught.value.message


def test_a_file_that_is_not_there_is_said() -> None:
    """And is no Python error."""
    with pytest.raises(ScenarioError, match=r"nowhere.yaml: the scenario cannot be read"):
        read_scenario("nowhere.yaml")


@pytest.mark.parametrize(
    ("text", "us"),
    [("0", 0), ("3s", 3_000_000), ("1.5ms", 1_500), ("1m30s", 90_000_000), ("2h", 7_200_000_000), ("7us", 7)],
)
def test_durations_are_exact_both_ways(text: str, us: int) -> None:
    """And what is written can be read again."""
    assert duration_us(text) == us
    assert duration_us(shown(us)) == us


@pytest.mark.parametrize("text", ["", "3", "3 s", "-3s", "s", "1.5us", "3x", "1e3s"])
def test_what_is_no_duration_is_none(text: str) -> None:
    """Also one finer than a microsecond."""
    assert duration_us(text) is None


@pytest.mark.parametrize("model", MODELS)
def test_the_list_of_events_has_each_with_its_fields(model: str) -> None:
    """``data/scenarios/README.md`` names every event of every model's table, and what is beside it."""
    readme = Path(__file__).resolve().parents[2] / "data/scenarios/README.md"
    words = set(re.findall(r"[a-z_]+", readme.read_text(encoding="utf-8")))
    for name, kind in model_named(model).events.items():
        assert {name, *(yaml_name(f.name) for f in fields(kind)[1:])} <= words


def test_an_event_is_a_row_of_a_table() -> None:
    """Its sentence, its fields with their defaults and what it does are all there is of it."""
    row = EventKind("A node hums.", {"node": Node, "times": (int, 2)}, lambda w, e, s: [(e.at_us, w.node, w.times)])  # type: ignore[list-item]
    (hum,) = table({"hum": row}).values()
    assert hum.__doc__ == "A node hums." and hum("a") == hum("a", 2) != hum("b")
    event = Planned(7, "hum a", "hum", hum("a"), 1)
    assert list(event.what.apply(event, None)) == [(7, "a", 2)]
    assert list(table({"rest": EventKind("Nothing.", {})})["rest"]().apply(event, None)) == []


def _with_event(line: str) -> Scenario:
    return scenario_from_text(f"model: scheduler\nuntil: 9s\ncluster: {{captures: 3, tables: 1}}\nevents: [{line}]\n")


def test_an_event_that_is_drawn_is_spelled_as_a_file_has_it() -> None:
    """It is read back with the values that were drawn, the ones of other fields are the row's defaults."""
    values = {"nodes": ("capture-1", "capture-2"), "one_way": True, "for_us": 1_500_000}
    line = spelled(MODEL.events, 3_000_000, "partition", values)
    assert line == "{at: 3s, partition: [capture-1, capture-2], one_way: true, for: 1.5s}"
    (event,) = _with_event(line).events
    assert event.at_us == 3_000_000 and {name: getattr(event.what, name) for name in values} == values
    assert spelled(MODEL.events, 500_000, "rebalance", {}) == "{at: 500ms, rebalance: null}"


def test_messages_are_lost_within_a_while() -> None:
    """`for` ends the waiting for a message that is to be lost; without it one is lost whenever it comes."""
    for line, until_us in (
        ("{at: 1s, lose: DispatchTable, for: 2s}", 3_000_000),
        ("{at: 1s, lose: DispatchTable}", None),
    ):
        scenario = _with_event(line)
        (event,) = scenario.events
        (fault,) = event.what.apply(event, scenario)
        assert fault.until_us == until_us


SCENARIOS = Path(__file__).resolve().parents[2] / "data/scenarios"


def mistakes(model: str, text: str) -> list[str]:
    """Give what the JSON schema of a model finds wrong in a file."""
    found: Any = yaml.safe_load(re.sub(r"\boff:", '"off":', text))  # a text in the YAML 1.2 that editors read
    return [error.message for error in jsonschema.Draft7Validator(schema(model)).iter_errors(found)]


@pytest.mark.parametrize("model", MODELS)
def test_the_json_schema_takes_what_the_reader_takes(model: str) -> None:
    """The files that come with the project, and what seeds draw."""
    texts = [path.read_text(encoding="utf-8") for path in sorted((SCENARIOS / model).glob("*.yaml"))]
    texts += [swarm(model, seed).text for seed in range(5)]
    assert len(texts) > 5 and [found for text in texts for found in mistakes(model, text)] == []
    assert mistakes("scheduler", WHOLE) == []


@pytest.mark.parametrize(
    "event",
    ["{at: 1s, crush: north}", "{at: 1s, crash: north, keep_state: true}", "{at: 1s, move_table: 1}", "{crash: north}",
     "{at: soon, crash: north}", "{at: 1s, heal: [north], for: 1s}", "{at: 1s, lose: Sync, count: many}"],
)  # fmt: skip
def test_the_json_schema_refuses_what_the_reader_refuses(event: str) -> None:
    """Another event, a field of another one, a field that is missing, a value of another form."""
    text = f"model: scheduler\ncluster: {{captures: [north, south], tables: 1}}\nevents: [{event}]\n"
    assert mistakes("scheduler", text)
    with pytest.raises(ScenarioError):
        scenario_from_text(text)


def test_every_event_of_a_model_is_in_its_json_schema() -> None:
    """With the sentence and the fields of its row."""
    events = {
        e["description"]: e["properties"] for e in schema("scheduler")["properties"]["events"]["items"]["anyOf"][:-1]
    }
    for kind, what in MODEL.events.items():
        beside = {yaml_name(f.name) for f in fields(what)[1:]}
        assert set(events[str(what.__doc__)]) == {"at", "name", kind, *beside}
