"""The placement rules and label conditions of a scenario."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ticdc_lab.simulate.pd.replay.fields import Fields, Malformed
from ticdc_lab.simulate.pd.rules import Constraint, Rule


def rules_of(settings: Fields) -> tuple[Rule, ...]:
    """Read placement rules, none where the settings make the rule."""
    if "rule" in settings:
        return (_rule(settings.object("rule"), 0),)
    return tuple(_rule(r, i) for i, r in enumerate(settings.objects("rules", [])))


def _rule(r: Fields, n: int) -> Rule:
    constraints = [constraint_of(r.text("constraint"), f"{r.where}.constraint")] if "constraint" in r else []
    constraints += [constraint_of(c, f"{r.where}.constraints") for c in r.items("constraints", [])]
    return Rule(
        r.text("role", "voter"), r.integer("count", 1), tuple(constraints), r.texts("location_labels", []),
        r.text("isolation_level", ""), r.flag("witness", r.flag("is_witness", False)), r.text("id", str(n)),
        r.text("start_key", ""), r.text("end_key", ""),
    )  # fmt: skip


def constraint_of(value: object, where: str) -> Constraint:
    """Read a condition: ``role in [voter, leader]``, ``zone notIn [..]``, ``zone exists``, or an object."""
    if isinstance(value, Mapping):
        c = Fields(value, where)
        return Constraint(c.text("key"), c.text("op"), c.texts("values", []))
    match = re.fullmatch(r"(\S+) (in|notIn|exists|notExists)(?: \[(.*)\])?", str(value))
    if match is None:
        raise Malformed(where, "a condition such as role in [voter]", value)
    return Constraint(match[1], match[2], tuple(v.strip() for v in (match[3] or "").split(",") if v.strip()))
