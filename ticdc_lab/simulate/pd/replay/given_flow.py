"""What a scenario says is written or read."""

from __future__ import annotations

from ticdc_lab.simulate.pd.hot_loads import (
    DIMENSIONS,
    LEAST_HOT,
    READ,
    WRITE,
    Flow,
    HotPeer,
    HotSettings,
    Loads,
)
from ticdc_lab.simulate.pd.replay.fields import Fields, Malformed
from ticdc_lab.simulate.pd.replay.given import FLOW_UNITS, Given
from ticdc_lab.simulate.pd.stores import NEVER_S


def flow_of(given: Given) -> Flow:
    """Read what is written or read a second: ``write_mib_s``, ``write_keys_s``, ``read_qps`` and so on.

    A store of which nothing is said never reported, nor one that is down and carries nothing. A region with too little
    flow is not hot.
    """
    kind = READ if any(f"read_{unit}" in s for s in given.stores for unit in FLOW_UNITS) else WRITE
    reported = [s for s in given.stores if any(f"{kind}_{unit}" in s for unit in FLOW_UNITS)]
    loads = {s.integer("id"): _loads(s, kind) for s in reported}
    silent = {i for i in loads if given.cluster.stores[i].heartbeat_age_s >= NEVER_S and not any(loads[i])}
    told = {r.integer("id", n): _loads(r, kind) for n, r in enumerate(given.regions_told, 1)}
    hot = {i for i, found in told.items() if any(x >= least for x, least in zip(found, LEAST_HOT[kind], strict=True))}
    peers = [
        HotPeer(r.id, p.store, p.store == r.leader, told[r.id])
        for r in given.regions
        for p in r.peers
        if r.id in hot and (kind == WRITE or p.store == r.leader)
    ]
    return Flow(kind, {i: x for i, x in loads.items() if i not in silent}, peers)


def _loads(s: Fields, kind: str) -> Loads:
    found = [0.0, 0.0, 0.0]
    for unit, (name, factor) in FLOW_UNITS.items():
        found[DIMENSIONS[name]] += s.number(f"{kind}_{unit}", 0) * factor
    return found[0], found[1], found[2]


def hot_settings(settings: Fields) -> HotSettings:
    """Read the settings of the hot-region scheduler: ``priorities``, and how far a store must be from the mean."""
    names = settings.texts("priorities", ["byte", "key"])
    dims = [DIMENSIONS[n] for n in names if n in DIMENSIONS]
    if len(dims) != 2:
        raise Malformed("given.config.priorities", f"two of {', '.join(DIMENSIONS)}", names)
    default = HotSettings()
    return default._replace(
        priorities=(dims[0], dims[1]),
        source_tolerance=settings.number("src_tolerance_ratio", default.source_tolerance),
        target_tolerance=settings.number("dst_tolerance_ratio", default.target_tolerance),
        great_dec_ratio=settings.number("great_dec_ratio", default.great_dec_ratio),
    )
