"""Who judges which record: answers of PD's code (oracle.jsonl), single decisions of its tests (scenarios.jsonl)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ticdc_lab.simulate.pd.replay import oracle, scenario_commands, scenario_decisions, scenario_facts
from ticdc_lab.simulate.pd.replay.given import given_of, not_understood
from ticdc_lab.simulate.pd.replay.records import Fields, UnknownRecord, Verdict
from ticdc_lab.simulate.pd.replay.scenario_decisions import FACTS

Judge = Callable[[Fields], Verdict]

JUDGES: tuple[tuple[str, str, Judge], ...] = (
    ("store_score", "", oracle.store_score),
    ("distinct_score", "", oracle.isolation_score),
    ("rule_checker", "", oracle.rule_checker),
    ("replica_checker", "", oracle.replica_checker),
    ("balance_region", "", oracle.balance_region),
    ("balance_leader", "", oracle.balance_leader),
    ("", "should_balance", scenario_facts.should_balance),
    ("", "higher_score", scenario_facts.higher_score),
    ("", "score", scenario_facts.distinct_score_rule),
    ("", "not_worse", scenario_facts.safe_location_rule),
    ("", "match", scenario_facts.constraint_match),
    ("", "low_space", scenario_facts.low_space),
    ("", "peers_per_rule", scenario_facts.peers_per_rule),
    ("", "allowed", scenario_facts.replacement_allowed),
    ("", "progress", scenario_commands.progress),
    ("", "status", scenario_commands.operator_status),
    ("", "limit_s", scenario_commands.operator_status),
    ("store state", "", scenario_facts.store_state),
    ("store-limit", "", scenario_commands.store_limit),
    ("operator", "", scenario_commands.operator_accepted),
    ("merge", "", scenario_decisions.merge),
    ("hot-region", "", scenario_decisions.hot_region),
    ("balance-leader", "", scenario_decisions.balance_leader),
    ("balance-region", "", scenario_decisions.balance_region),
    ("joint-state", "", scenario_decisions.joint_state),
    ("split", "", scenario_decisions.split),
    ("learner", "", scenario_decisions.learners),
)
"""Kind of a record or area of a scenario, what it expects, and who judges it; the first that fits. "" fits any."""

_OF_CHECKERS = ("replica_checker", "rule_checker", "replica-checker", "rule-checker")
_CHECKED = frozenset({"down-peer", "offline", "location labels", "storage", "placement", "witness", "replica", "rule"})
"""Areas whose decisions the checkers make."""


def judge_scenario(record: Fields, defaults: Mapping[str, Any]) -> Verdict:
    """Judge a scenario.

    Parameters
    ----------
    record
        ``area``, ``given`` and ``expect``.
    defaults
        ``given`` of the file's first line; those that the real PD's test cluster has are built in.

    Returns
    -------
    Verdict
        Not judged where we disagree and something that the scenario says was not read, or where only what we do not
        tell is left to compare.

    Raises
    ------
    Unknown
        It asks for something that is not modelled.
    """
    judge = _judge(record)
    verdict = judge(record)
    in_words = judge is scenario_facts.distinct_score_rule
    deaf = [] if in_words else not_understood(given_of(record))
    untold = [f"expect.{k}" for k in _untold(record.object("expect"))] if _is_decision(record) else []
    if not deaf and not untold:
        return verdict
    because = f"{verdict.because}; not understood: {', '.join(deaf + untold)}"
    judged = verdict.agrees and not untold
    return verdict._replace(agrees=True if judged else None, because=because)


def _is_decision(record: Fields) -> bool:
    return bool({"operator", "one_of"} & set(record.object("expect").value))


def _untold(expect: Fields) -> list[str]:
    """Give the facts that a scenario expects of an operator and that we do not tell."""
    options = [f.value for f in expect.objects("one_of")] if "one_of" in expect else [expect.value]
    return sorted({k for option in options for k in option} - FACTS)


def _judge(record: Fields) -> Judge:
    expect, area = record.object("expect"), record.text("area")
    for name, key, judge in JUDGES:
        if name in ("", area) and (not key or key in expect):
            return judge
    if "command" in given_of(record).settings:
        return scenario_commands.command
    if _is_decision(record) and _by_checkers(record, area):
        return scenario_decisions.check
    raise UnknownRecord(f"area {area} with the expectation of {', '.join(expect.value) or 'nothing'}")


def _by_checkers(record: Fields, area: str) -> bool:
    source = record.text("source_path", "")
    return area in _CHECKED or any(name in area or name in source for name in _OF_CHECKERS)
