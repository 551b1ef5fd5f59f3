"""Single decisions from the real PD's own tests (golden/pd/scenarios.jsonl): who judges which."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ticdc_lab.simulate.pd.replay import scenario_commands, scenario_decisions, scenario_facts, scenario_placement
from ticdc_lab.simulate.pd.replay.fields import Fields, Malformed
from ticdc_lab.simulate.pd.replay.given import given_of, not_understood
from ticdc_lab.simulate.pd.replay.verdict import Verdict

Judge = Callable[[Fields], Verdict]

_BY_EXPECTATION: tuple[tuple[str, Judge], ...] = (
    ("should_balance", scenario_facts.should_balance),
    ("higher_score", scenario_facts.higher_score),
    ("score", scenario_facts.distinct_score_rule),
    ("not_worse", scenario_placement.safe_location_rule),
    ("match", scenario_placement.constraint_match),
    ("low_space", scenario_facts.low_space),
    ("peers_per_rule", scenario_placement.peers_per_rule),
    ("allowed", scenario_placement.replacement_allowed),
    ("progress", scenario_commands.progress),
    ("status", scenario_commands.operator_status),
    ("limit_s", scenario_commands.operator_status),
)
"""What is expected tells what is asked; the first that is there."""

_BY_AREA: Mapping[str, Judge] = {
    "store state": scenario_facts.store_state,
    "store-limit": scenario_commands.store_limit,
    "operator": scenario_commands.operator_accepted,
    "merge": scenario_decisions.merge,
    "hot-region": scenario_decisions.hot_region,
    "balance-leader": scenario_decisions.balance_leader,
    "balance-region": scenario_decisions.balance_region,
}


def judge_scenario(record: Fields, defaults: Mapping[str, Any]) -> Verdict:
    """Judge a scenario.

    Parameters
    ----------
    record
        ``area``, ``given`` and ``expect``.
    defaults
        ``given`` of the file's first line; those that the real PD's test cluster has are built in.
    """
    judge = _judge(record)
    verdict = judge(record)
    in_words = judge is scenario_facts.distinct_score_rule
    deaf = [] if in_words else not_understood(given_of(record))
    if not deaf:
        return verdict
    return verdict._replace(because=f"{verdict.because}; not understood: {', '.join(deaf)}")


def _judge(record: Fields) -> Judge:
    expect, area = record.object("expect"), record.text("area")
    for key, judge in _BY_EXPECTATION:
        if key in expect:
            return judge
    if area in _BY_AREA:
        return _BY_AREA[area]
    if "command" in given_of(record).settings:
        return scenario_commands.command
    if "operator" in expect or "one_of" in expect:
        return scenario_decisions.check
    raise Malformed("record.expect", "an expectation of a known kind", ", ".join(expect.value))
