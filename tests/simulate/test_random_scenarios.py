"""Scenarios that nobody thought of: hypothesis writes the file, the auditor watches the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from ticdc_lab.errors import ScenarioError
from ticdc_lab.simulate.scenario import scenario_from_text
from ticdc_lab.simulate.scheduler.play import play

FILE = Path(__file__).resolve().parents[2] / "data/scenarios/scheduler/ddl-barrier.yaml"
QUIET_MS, END_MS = 8_000, 25_000
"""Nothing happens after the first, so that everything can recover until the second."""

captures = st.sampled_from(["capture-1", "capture-2", "capture-3"])
nodes = st.sampled_from(["capture-1", "capture-2", "capture-3", "etcd"])
tables = st.integers(1, 5)
short = st.integers(1, 1_500).map(lambda ms: f"{ms}ms")


def happening(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """An event at some moment."""
    at = st.integers(0, QUIET_MS).map(lambda ms: f"{ms}ms")
    return st.fixed_dictionaries({"at": at, **{name.rstrip("_"): value for name, value in fields.items()}})


crash_and_return = st.builds(
    lambda node, at, back, keep: [
        {"at": f"{at}ms", "crash": node},
        {"at": f"{at + back}ms", "restart": node, "keep_state": keep},
    ],
    captures, st.integers(0, QUIET_MS), st.integers(1, 3_000), st.booleans(),
)  # fmt: skip
single = st.one_of(
    happening(pause=captures, for_=short),
    happening(partition=nodes, for_=short),
    happening(partition=captures, from_=st.just("etcd"), for_=short, one_way=st.booleans()),
    happening(refuse=captures, to=captures, for_=short),
    happening(link=nodes, to=nodes, delay=st.just(["1ms", "300ms"]), loss=st.just("50%"), for_=short),
    happening(clock=captures, offset=st.integers(-400, 400).map(lambda ms: f"{ms}ms")),
    happening(restart_processor=captures),
    happening(expire_session=captures),
    happening(stuck_table=tables, for_=short),
    happening(ddl=short),
    happening(add_table=st.integers(1, 8)),
    happening(drop_table=tables),
    happening(move_table=tables, to=captures),
    happening(rebalance=st.none()),
    happening(drain=captures),
)
events = st.lists(st.one_of(single.map(lambda e: [e]), crash_and_return), max_size=8).map(
    lambda some: [event for few in some for event in few]
)


@settings(max_examples=12, deadline=None, derandomize=True, phases=[Phase.generate])
@given(events=events, variant=st.sampled_from(["v2", "v2", "v3", "v4"]), seed=st.integers(0, 5))
def test_whatever_happens_nothing_is_written_twice_and_all_recovers(
    events: list[dict[str, Any]], variant: str, seed: int
) -> None:
    """Every table replicates and the checkpoint proceeds once nothing happens any more; the run can be had again."""
    scenario = scenario_from_text(
        yaml.safe_dump(
            {
                "model": "scheduler",
                "variant": variant,
                "until": f"{END_MS}ms",
                "cluster": {"captures": 3, "tables": 5},
                "events": events,
                "assert": [
                    {"always": "no double write"},
                    {"always": "no violation"},
                    {"eventually": "every table replicates"},
                    {"eventually": "global checkpoint lag < 2s"},
                ],
            }
        )
    )
    played = play(scenario, seed=seed, keep=False)
    assert [o for o in played.outcomes if not o.held] == [], played.scenario.text
    assert play(scenario, seed=seed, keep=False).outcomes == played.outcomes


@settings(max_examples=150, deadline=None, derandomize=True)
@given(data=st.data())
def test_a_damaged_file_is_a_sentence_with_its_line(data: st.DataObject) -> None:
    """Whatever a slip of the keyboard does to a file, it is read or refused with file and line."""
    text = FILE.read_text(encoding="utf-8")
    at = data.draw(st.integers(0, len(text) - 1))
    new = data.draw(st.text(st.sampled_from("{}[]:-, \n\t#&*!|>'\"%@0aé"), max_size=3))
    told = _told(text[:at] + new + text[at + data.draw(st.integers(0, 3)) :])
    assert told is None or told.startswith("file.yaml:")


def _told(text: str) -> str | None:
    try:
        scenario_from_text(text, "file.yaml")
    except ScenarioError as error:
        return error.message
    return None
