"""``pd-ctl config ...``: PD's settings by PD's names."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ticdc_lab.errors import SourceError, TiCDCLabError
from ticdc_lab.pd_core.config import NO_SETTINGS, OTHER_NAMES, Config, field_of
from ticdc_lab.pd_core.pd_ctl_files import documents_in
from ticdc_lab.pd_core.pd_ctl_settings import rules_in, value_of
from ticdc_lab.pd_core.rules import Rule, default_rules, unusable, with_rules

if TYPE_CHECKING:
    from ticdc_lab.simulate.pd.world.world import World


class Refused(TiCDCLabError):
    """PD refuses, or the words are none of pd-ctl's."""


class NotUnderstood(Refused):
    """Words that pd-ctl or PD refuses in any cluster: a scenario with them is refused before it runs."""


def number(word: str, what: str) -> int:
    if not word.isdigit():
        raise NotUnderstood(f"{what} {word}: expected a whole number")
    return int(word)


def decimal(word: str, what: str) -> float:
    """Read a rate or a weight, which is not below zero."""
    try:
        found = float(word)
    except ValueError:
        found = -1.0
    if not 0 <= found < math.inf:
        raise NotUnderstood(f"{what} {word}: expected a number from 0 on")
    return found


def row_of(world: World, word: str) -> int:
    row = world.regions.row_of.get(number(word, "region"))
    if row is None:
        raise Refused(f"region {word} not found")
    return row


def position_of(world: World, word: str) -> int:
    i = world.regions.at.get(number(word, "store"))
    if i is None or not world.nodes.all[i].known:
        raise Refused(f"ErrStoreNotFound: store {word} not found")
    return i


_FIELDS = {f.name: f for f in fields(Config) if f.name not in NO_SETTINGS}
_NAMES = {f: f.replace("_", "-") for f in _FIELDS} | {f: name for name, f in OTHER_NAMES.items()}
_WORDS = {
    "leader_schedule_policy": ("count", "size"),
    "region_score_formula_version": ("v1", "v2"),
    "store_limit_version": ("v1", "v2"),
}
DONE = "Success!"
_IN_DEFAULT_RULE = ("max-replicas", "location-labels", "isolation-level")
_REPLICATION = ("max-replicas", "location-labels", "isolation-level", "enable-placement-rules")


def config(world: World, words: list[str]) -> Any:
    """``config show [all|schedule|replication] | set NAME VALUE | placement-rules show | .. save JSON``."""
    match words:
        case ["show"] | ["show", "all"]:
            return shown(world.config)
        case ["show", "schedule"]:
            return {k: v for k, v in shown(world.config).items() if k not in _REPLICATION}
        case ["show", "replication"]:
            return {k: v for k, v in shown(world.config).items() if k in _REPLICATION}
        case ["set", name, *value]:
            changed = with_setting(world.config, name, " ".join(value))
            if world.rules is not None and name in _IN_DEFAULT_RULE:
                world.rules = _with_default_rule(world, changed)
            if changed.store_limit_version != world.config.store_limit_version:
                world.nodes.use_limits(changed.store_limit_version, world.now_us)
            world.config = changed
            return DONE
        case ["placement-rules", "show"]:
            return [told_rule(r) for r in world.cluster().rules]
        case ["placement-rules", "save", text]:
            _save_rules(world, text)
            return DONE
        case _:
            known = "show [all|schedule|replication], set NAME VALUE, placement-rules show, placement-rules save JSON"
            raise NotUnderstood(f"config {' '.join(words)}: no such command", hint=f"Known: {known}.")


def _save_rules(world: World, text: str) -> None:
    """Save rules beside those that there are; one of the same group and id is replaced, with count 0 deleted."""
    name, before = Path("config placement-rules save"), world.cluster().rules
    try:
        saved = rules_in([(name, [one for _, one in documents_in(text.encode(), name)])], before).rules
    except SourceError as e:
        raise NotUnderstood(str(e)) from e
    if not saved:
        raise NotUnderstood(f"{name}: no rule is given, only groups")
    like = {r.group: r for r in before} | {r.group: r for r in saved}
    groups = ((r, like[r.group]) for r in before)
    kept = (r._replace(group_index=one.group_index, group_override=one.group_override) for r, one in groups)
    rules = with_rules(kept, (r._replace(id=r.id or "default") for r in saved))
    if why := unusable(rules):
        raise Refused(f"config placement-rules save: {why}")
    world.rules = rules


def _with_default_rule(world: World, changed: Config) -> tuple[Rule, ...]:
    """Give the rules with the default one as a setting of replication would have it."""
    before, after = default_rules(world.config)[0], default_rules(changed)[0]
    rules = world.cluster().rules
    if before not in rules:
        raise Refused(
            "cannot update the replication config: the default rule is not as it says",
            hint="Save a rule with `group_id` pd and `id` default instead.",
        )
    return with_rules(rules, [after])


def shown(c: Config) -> dict[str, Any]:
    """Give all settings by PD's names."""
    return {_NAMES[name]: getattr(c, name) for name in _FIELDS}


def with_setting(c: Config, name: str, value: object) -> Config:
    """Change a setting, by PD's name; refuse a name that there is none of, and a value that it cannot have."""
    field = field_of(name)
    if field not in _FIELDS:
        known = sorted(_NAMES.values())
        near = get_close_matches(name.replace("_", "-"), known, n=1)
        raise NotUnderstood(
            f"config item {name} not found", hint=f"Did you mean {near[0]}?" if near else f"Known: {', '.join(known)}."
        )
    default = getattr(Config(), field)
    try:
        changed: dict[str, Any] = {field: value_of(default, value)}
        _check(field, changed[field])
        return replace(c, **changed)
    except (TypeError, ValueError) as e:
        raise NotUnderstood(f"config set {name} {value}: {e}") from e


def _check(field: str, value: object) -> None:
    """Refuse what PD does: limits and times below zero, parts above one, words that it does not know."""
    if isinstance(value, int | float) and not 0 <= value < math.inf:
        raise ValueError("expected a number from 0 on")
    if field in ("low_space_ratio", "high_space_ratio") and isinstance(value, float) and value > 1:
        raise ValueError("expected a number from 0 to 1")
    if field in _WORDS and value not in _WORDS[field]:
        raise ValueError(f"expected {' or '.join(_WORDS[field])}")


def config_of(settings: dict[str, Any]) -> tuple[Config, dict[str, Any]]:
    """Read settings by PD's names; those that are no settings of PD's are given back."""
    c, rest = Config(), {}
    for name, value in settings.items():
        if field_of(name) in _FIELDS:
            c = with_setting(c, name, value)
        else:
            rest[name] = value
    return c, rest


def told_rule(r: Rule) -> dict[str, Any]:
    constraints = [{"key": c.key, "op": c.op, "values": list(c.values)} for c in r.constraints]
    return {
        "group_id": r.group, "id": r.id, "index": r.position, "override": r.override,
        "role": r.role, "count": r.replicas, "label_constraints": constraints,
        "location_labels": list(r.location_labels), "isolation_level": r.isolation_level, "is_witness": r.witness,
        "start_key": r.start_key, "end_key": r.end_key,
    }  # fmt: skip
