"""What a scenario says is written or read."""

from __future__ import annotations

from ticdc_lab.simulate.pd.hot_loads import READ, WRITE, ZERO, Flow, HotPeer, Loads
from ticdc_lab.simulate.pd.replay.fields import Fields
from ticdc_lab.simulate.pd.replay.given import Given
from ticdc_lab.simulate.pd.stores import MIB, NEVER_S

_UNITS = {
    "byte": ("mib_s", MIB, "kib_s", 1024),
    "key": ("keys_s", 1, "keys_s", 1),
    "query": ("queries_s", 1, "queries_s", 1),
}


def flow_of(record: Fields, given: Given) -> Flow:
    """Read what is written or read a second: ``write_mib_s`` of stores, ``write_kib_s`` of regions, keys, queries.

    A store that is down and carries nothing never reported.
    """
    kind = READ if any(f"read_{u[0]}" in s for s in given.stores for u in _UNITS.values()) else WRITE
    loads = {s.integer("id"): _loads(s, kind, stores=True) for s in given.stores}
    silent = {i for i, s in given.cluster.stores.items() if s.heartbeat_age_s >= NEVER_S and not any(loads[i])}
    told = {r.integer("id"): _loads(r, kind, stores=False) for r in record.object("given").objects("regions")}
    peers = [
        HotPeer(r.id, p.store, p.store == r.leader, told.get(r.id, ZERO))
        for r in given.regions
        for p in r.peers
        if any(told.get(r.id, ZERO)) and (kind == WRITE or p.store == r.leader)
    ]
    return Flow(kind, {i: x for i, x in loads.items() if i not in silent}, peers)


def _loads(s: Fields, kind: str, *, stores: bool) -> Loads:
    at = 0 if stores else 2
    found = [s.number(f"{kind}_{u[at]}", 0) * float(u[at + 1]) for u in _UNITS.values()]
    return found[0], found[1], found[2]
