"""The machine of node ``pd``: where regions are, which stores live, and who is to lead when a leader is gone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from immutables import Map

from ticdc_lab.machines.machine import (
    Address,
    Changed,
    Decided,
    Event,
    Fired,
    Ignored,
    Now,
    Output,
    Received,
    ReceivedMany,
    Send,
    Wake,
    life_of,
    node_of,
    one_by_one,
    stepped,
)
from ticdc_lab.simulate.pipeline.kv_messages import GetRegions, KvRegion, RegionHeartbeat, Regions
from ticdc_lab.simulate.pipeline.settings import TikvSettings
from ticdc_lab.simulate.pipeline.tikv.raft_messages import AskSplit, Campaign, SplitId, Stores
from ticdc_lab.simulate.pipeline.tikv.region_data import peers_of

LOOK = "look"


class Known(NamedTuple):
    """A region as PD knows it, and when its leader was last heard; ``tries`` counts elections asked for since."""

    region: KvRegion
    term: int
    peers: tuple[str, ...]
    heard_us: int
    tries: int = 0


@stepped
class PdState(NamedTuple):
    """What PD knows: regions by id, of each store its address and when it was last heard, the id of the next region."""

    regions: Map[int, Known]
    stores: Map[str, tuple[Address, int]]
    next_id: int


@dataclass(frozen=True, slots=True)
class Pd:
    """The machine of PD."""

    settings: TikvSettings  # after how long a store counts as down
    stores: tuple[str, ...]  # names of all stores
    regions: tuple[KvRegion, ...]  # the regions at first

    def start(self, address: Address, now: Now) -> tuple[PdState, list[Output]]:
        known = {r.id: Known(r, 1, peers_of(r, self.settings, self.stores), now.at_us) for r in self.regions}
        next_id = max(known, default=0) + 1
        state = PdState(Map(known), Map({s: (s, now.at_us) for s in self.stores}), next_id)
        return state, [Wake(self._look_us, LOOK)]

    @property
    def _look_us(self) -> int:
        return max(1, self.settings.store_down_us // 6)

    def step(self, state: PdState, event: Event, now: Now) -> tuple[PdState, list[Output]]:
        if isinstance(event, Received):
            return self._received(state, event.sender, event.message, now)
        if isinstance(event, ReceivedMany):
            return one_by_one(self, state, event, now)
        if isinstance(event, Fired) and event.name == LOOK:
            state, outputs = self._look(state, now)
            return state, [*outputs, Wake(self._look_us, LOOK)]
        return state, []

    def _received(self, state: PdState, sender: Address, message: Any, now: Now) -> tuple[PdState, list[Output]]:
        if isinstance(message, GetRegions):
            start, end = message
            return state, [Send(sender, Regions(start, end, regions_in(state, start, end)))]
        if isinstance(message, AskSplit):
            answer = SplitId(*message, new=state.next_id)
            return state._replace(next_id=state.next_id + 1), [Send(sender, answer)]
        if isinstance(message, RegionHeartbeat):
            state, outputs = self._store_heard(state, sender, now)
            state, more = self._regions_heard(state, message, now)
            return state, [*outputs, *more]
        return state, [Ignored(message, "PD has no use for it")]

    def _store_heard(self, state: PdState, sender: Address, now: Now) -> tuple[PdState, list[Output]]:
        """Note that a store lives; where it is under another address now, inform all of them."""
        name = node_of(sender)
        known, _ = state.stores.get(name, (sender, 0))
        if life_of(sender) < life_of(known):
            return state, []
        state = state._replace(stores=state.stores.set(name, (sender, now.at_us)))
        if sender == known:
            return state, []
        addresses = tuple((s, state.stores[s][0]) for s in self.stores)
        told: list[Output] = [Send(address, Stores(addresses)) for _, address in addresses]
        return state, [Changed(f"store:{name}", known, sender, "it came back"), *told]

    def _regions_heard(self, state: PdState, message: RegionHeartbeat, now: Now) -> tuple[PdState, list[Output]]:
        known = dict(sorted(state.regions.items()))
        outputs: list[Output] = []
        for gone in message.gone:
            if known.pop(gone, None) is not None:
                outputs.append(Changed(f"pd:region:{gone}", "known", None, "it was merged into another"))
        for region, term, peers in zip(message.regions, message.terms, message.peers, strict=True):
            before = known.get(region.id)
            if before is None or before.region != region:
                if not _is_news(list(known.values()), region, term):
                    continue
                for other in [k.region.id for k in known.values() if _overlap(k.region, region)]:
                    del known[other]
                shown = (_shown(before.region) if before else None, _shown(region))
                outputs.append(Changed(f"pd:region:{region.id}", *shown, "its leader reported it"))
            known[region.id] = Known(region, term, peers, now.at_us)
        return state._replace(regions=Map(known)), outputs

    def _look(self, state: PdState, now: Now) -> tuple[PdState, list[Output]]:
        """Let a living peer campaign where no leader has been heard for too long."""
        outputs: list[Output] = []
        asked: dict[str, list[int]] = {}
        for region, known in sorted(state.regions.items()):
            silent_us = now.at_us - known.heard_us
            if silent_us <= self.settings.store_down_us:
                continue
            leader = node_of(known.region.leader)
            alive = [p for p in known.peers if p != leader and self._lives(state, p, now)]
            alive += [leader] if self._lives(state, leader, now) else []
            because = f"its leader {leader} has not been heard for {silent_us / 1e6:.3f} s"
            rejected = tuple((p, "it is down") for p in known.peers if p not in alive)
            chosen = alive[known.tries % len(alive)] if alive else None
            outputs.append(Decided(f"region:{region}", chosen, because, rejected))
            if chosen is not None:
                asked.setdefault(chosen, []).append(region)
            state = state._replace(regions=state.regions.set(region, known._replace(tries=known.tries + 1)))
        for store, regions in asked.items():
            address, _ = state.stores[store]
            outputs.append(Send(address, Campaign(tuple(regions), "its leader was not heard any more")))
        return state, outputs

    def _lives(self, state: PdState, store: str, now: Now) -> bool:
        return now.at_us - state.stores[store][1] <= self.settings.store_down_us


def regions_in(state: PdState, start: int, end: int) -> tuple[KvRegion, ...]:
    found = [k.region for k in state.regions.values() if k.region.start < end and start < k.region.end]
    return tuple(sorted(found, key=lambda r: r.start))


def _is_news(known: Sequence[Known], region: KvRegion, term: int) -> bool:
    """Whether a report is not older than what is known of its range."""
    for other in known:
        if other.region.id == region.id:
            if (region.epoch, term) < (other.region.epoch, other.term):
                return False
        elif _overlap(other.region, region) and other.region.epoch >= region.epoch:
            return False
    return True


def _overlap(one: KvRegion, other: KvRegion) -> bool:
    return one.start < other.end and other.start < one.end


def _shown(region: KvRegion) -> str:
    return f"{region.leader}, epoch {region.epoch}"
