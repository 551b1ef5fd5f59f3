"""Scenarios about what administrators do, how limits count, how operators end and which may be handed over."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ticdc_lab.simulate.pd import forecast, limits
from ticdc_lab.simulate.pd.cluster import Cluster
from ticdc_lab.simulate.pd.lifecycle import EXPIRES_AFTER_S, impossible, may_be_added, status_at
from ticdc_lab.simulate.pd.operators import (
    AddLearner,
    Kind,
    Operator,
    Priority,
    RemovePeer,
    Step,
    TransferLeader,
    timeout_s,
)
from ticdc_lab.simulate.pd.regions import Region
from ticdc_lab.simulate.pd.replay.given import Given, given_of, region_of, stores_of
from ticdc_lab.simulate.pd.replay.records import Fields, UnknownRecord, Verdict, equal
from ticdc_lab.simulate.pd.store_states import (
    CommandTold,
    bring_up,
    bury_store,
    checked_states,
    delete_store,
    may_take_address,
)
from ticdc_lab.simulate.pd.stores import REMOVED, SERVING, Store

_SHOWN = {SERVING: "up", REMOVED: "tombstone"}


def command(record: Fields) -> Verdict:
    """Carry out a command such as ``store delete 3 physically-destroyed; then state check``."""
    given = given_of(record)
    text = given.settings.text("command")
    expect = record.object("expect").value
    if "put a new store" in text:
        accepted = {str(i): ("accepted" if may_take_address(s) else "refused") for i, s in given.cluster.stores.items()}
        return equal({"result": accepted}, expect, "only a tombstone's or a destroyed store's address is free")
    cluster, told = _carried_out(given.cluster, text)
    if "state check" in text:
        cluster = cluster._replace(stores=checked_states(cluster.stores))
        told = {i: CommandTold(cluster.stores[i]) for i in told}
    because = "; ".join(t.because or t.error for t in told.values() if t.error)
    return equal(_in_form(told, expect), expect, because)


def _carried_out(cluster: Cluster, text: str) -> tuple[Cluster, dict[int, CommandTold]]:
    match = re.match(r"(store delete|store up|store cancel-delete|force bury|bury|store bury) ([\d, ]+)(.*)", text)
    if match is None:
        raise UnknownRecord(f"the command {text!r}; known are store delete, store up and bury, with stores")
    destroyed = "physically-destroyed" in match[3]
    told = {}
    for store in (int(n) for n in re.findall(r"\d+", match[2])):
        told[store] = _one(cluster, match[1], store, destroyed)
        after = told[store].store
        if after is not None:
            cluster = cluster._replace(stores={**cluster.stores, store: after})
    return cluster, told


def _one(cluster: Cluster, verb: str, store: int, destroyed: bool) -> CommandTold:
    if verb == "store delete":
        return delete_store(cluster, store, physically_destroyed=destroyed)
    if verb in ("store up", "store cancel-delete"):
        return bring_up(cluster, store)
    return bury_store(cluster, store, force=verb == "force bury")


def _in_form(told: Mapping[int, CommandTold], expect: Mapping[str, Any]) -> dict[str, Any]:
    """Give what a command came to as the scenario asks for it: an error, a state, a result a store."""
    first = next(iter(told.values()))
    ours: dict[str, Any] = {}
    if "error" in expect:
        ours["error"] = ("refused" if expect["error"] == "refused" else first.error) if first.error else None
    if "state" in expect:
        states = {str(i): _shown(t.store) for i, t in told.items()}
        ours["state"] = states if isinstance(expect["state"], dict) else _shown(first.store)
    if "result" in expect:
        ours["result"] = {str(i): f"refused: {t.because}" if t.error else _shown(t.store) for i, t in told.items()}
    return ours


def _shown(store: Store | None) -> str | None:
    return None if store is None else _SHOWN.get(store.state, store.state)


def progress(record: Fields) -> Verdict:
    given = given_of(record)
    size = given.settings.number("region_size_mib", 96)
    regions = stores_of(given)[0].region_count
    if "removed_after_10s" in given.settings:
        gone = given.settings.number("removed_after_10s")
        found = forecast.progress(gone * size, regions * size, 10)
    else:
        target = given.settings.number("target_region_size_mib")
        found = forecast.progress(regions * size, target, given.settings.number("elapsed_s", 10))
    expect = record.object("expect").value
    return equal({k: v for k, v in found._asdict().items() if k in expect}, expect, "MiB of regions gone so far")


def store_limit(record: Fields) -> Verdict:
    given = given_of(record)
    expect = record.object("expect").value
    if "window_capacity_mib_by_priority" in expect:
        return _windows(expect)
    stores_of(given)
    store = given.stores[0]
    if "rate_per_s" in store:
        return _bucket(store.number("rate_per_s"), expect)
    limit = store.object("store_limit")
    rate = limit.number(next(iter(limit.value), "add-peer"))
    cost = limits.step_cost(region_of(given).size)
    bucket, accepted = limits.bucket_per_minute(rate), 0
    if not cost or limits.is_unlimited(bucket):
        return equal({"accepted": "unlimited"}, {k: v for k, v in expect.items() if k != "then"}, "no limit holds")
    while limits.available(bucket, 0, cost):
        bucket, accepted = limits.taken(bucket, 0, cost), accepted + 1
    then = expect.get("then")
    ours = {"accepted": accepted} | ({"then": then if then == "not tested" else "refused"} if then else {})
    return equal(ours, expect, f"{limits.capacity(rate / 60):.0f} tokens, {cost} a peer")


def _windows(expect: Mapping[str, Any]) -> Verdict:
    windows = limits.Windows()
    capacities = {p.name.lower(): limits.window_capacity(windows, p) for p in Priority}
    ours = dict(expect) | {"window_capacity_mib_by_priority": capacities, "minimum": limits.LEAST_WINDOW_MIB}
    full = limits.with_snapshot(windows, Priority.LOW, 91)
    overshoots = limits.with_snapshot(windows._replace(used=(90, 0, 0, 0)), Priority.LOW, 500) is not None
    shut = full is not None and not limits.window_open(full, Priority.LOW)
    higher = full is not None and limits.window_open(full, Priority.MEDIUM)
    return Verdict(ours, dict(expect), ours == expect and overshoots and shut and higher, "tried window by window")


def _bucket(rate: float, expect: Mapping[str, Any]) -> Verdict:
    full = limits.bucket(rate)
    emptied = limits.taken(full, 0, limits.capacity(rate))
    ours: dict[str, Any] = {
        "capacity_tokens": limits.capacity(rate),
        f"after_taking_{limits.capacity(rate):.0f}": "available" if limits.available(emptied, 0) else "unavailable",
        "rate_0": "unlimited" if limits.is_unlimited(limits.bucket(0)) else "limited",
    }
    return equal({k: ours.get(k) for k in expect}, expect, "one second's worth, one large region at least")


def operator_status(record: Fields) -> Verdict:
    """Give the state an operator is in after a while, and the limit that brought it there."""
    given = given_of(record)
    expect = record.object("expect").value
    op = _operator(given)
    ours: dict[str, Any]
    if "running_s" in given.settings:
        running = given.settings.number("running_s")
        ours = {"status": status_at(op, created_s_ago=running, running_s=running), "limit_s": timeout_s(op)}
    elif "created_age_s" in given.settings:
        age = given.settings.number("created_age_s")
        ours = {"status": status_at(op, created_s_ago=age), "limit_s": EXPIRES_AFTER_S}
    else:
        why = impossible(given.cluster, region_of(given), op.steps[0])
        return equal(_in_words({"status": "stale" if why else "started"}, expect), expect, why)
    ours = _in_words({k: v for k, v in ours.items() if k in expect}, expect)
    return equal(ours, expect, "steps may take so long together")


_OTHER_WORDS = {"started": ("running",), "stale": ("canceled", "cancelled")}


def _in_words(ours: dict[str, Any], expect: Mapping[str, Any]) -> dict[str, Any]:
    """Give a status by another word that the scenario uses for it: PD shows a started operator as running."""
    wanted = expect.get("status")
    return ours | {"status": wanted} if wanted in _OTHER_WORDS.get(str(ours.get("status")), ()) else ours


_STEP = re.compile(r"(transfer|add|remove)[ -](leader|peer)(?:(?: to| from)? (\d+))?(?: ?-> ?(\d+))?")
_REMOVED, _ADDED = 1, 2
"""Stores of steps that name none."""


def _operator(given: Given) -> Operator:
    """Read an operator such as ``remove-peer + add-peer 3`` or ``transfer leader to 2``."""
    text, region = given.settings.text("operator"), region_of(given)
    steps = tuple(_step(t.strip(), region) for t in text.split("+"))
    return Operator("test", text, region.id, Kind(0), steps, size=region.size)


def _step(text: str, region: Region) -> Step:
    match = _STEP.fullmatch(text)
    if match is None:
        raise UnknownRecord(f"the step {text!r} of an operator; known are add-peer, remove-peer and transfer-leader")
    store = int(match[4] or match[3] or 0)
    if match[1] == "transfer":
        return TransferLeader(region.leader, store or _ADDED)
    return AddLearner(store or _ADDED) if match[1] == "add" else RemovePeer(store or _REMOVED)


def operator_accepted(record: Fields) -> Verdict:
    """Say whether operators in these states may be handed to the controller."""
    given = given_of(record)
    states = given.settings.texts("operator_status")
    ours = {"accepted": any(may_be_added(s) for s in states)}
    return equal(ours, record.object("expect").value, "only a created operator may be added")
