"""One step of a store while it is taken: the state so far and what came out so far."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ticdc_lab.simulate.machine import Address, Now, Output, Send
from ticdc_lab.simulate.pipeline.kv_messages import NotLeader, Region
from ticdc_lab.simulate.pipeline.tikv.region_data import Data
from ticdc_lab.simulate.pipeline.tikv.store_state import Peer, StoreState

if TYPE_CHECKING:
    from ticdc_lab.simulate.pipeline.tikv.store import Store


@dataclass(slots=True)
class Turn:
    """What the parts of a store hand to each other within one step; nothing of it outlives the step.

    Attributes
    ----------
    changes
        Regions that came to be served here or have another range since the step began: before (None) and after.
    """

    store: Store
    state: StoreState
    now: Now
    out: list[Output] = field(default_factory=list)
    changes: list[tuple[int, Data | None, Data]] = field(default_factory=list)

    def put(self, region: int, peer: Peer) -> None:
        """Replace a peer."""
        state = self.state
        self.state = state._replace(peers=state.peers.set(region, peer))

    def write(self, peers: Mapping[int, Peer], before: Iterable[tuple[int, Peer]]) -> None:
        """Write to the logs of several regions, in one write; ``before`` is how they were."""
        if peers:
            self.state = self.state._replace(peers=self.state.peers.update(peers), written=tuple(before))

    def put_all(self, peers: Mapping[int, Peer]) -> None:
        """Replace peers of several regions."""
        if peers:
            self.state = self.state._replace(peers=self.state.peers.update(peers))

    def send(self, store: str, message: Any) -> None:
        """Send to another store, by name."""
        self.out.append(Send(self.state.addresses.get(store, store), message))

    def led(self) -> list[tuple[int, Peer]]:
        """Give the regions that this store leads, by id."""
        return sorted((e for e in self.state.peers.items() if e[1].led is not None), key=lambda e: e[0])

    def address_of(self, store: str | None) -> Address | None:
        """Give the address of a store."""
        if store is None or store == self.state.name:
            return self.state.address if store else None
        return self.state.addresses.get(store, store)

    def not_leader(self, region: int) -> NotLeader:
        """Refuse, and say who leads as far as this store knows."""
        peer = self.state.peers.get(region)
        leader = peer.leader if peer and peer.led is None and peer.leader != self.state.name else None
        return NotLeader(region, self.address_of(leader))

    def parts_of(self, data: Data) -> tuple[Region, ...]:
        """Give what was split off a region as clients know it: as it is now where there is a peer of it."""
        state, found = self.state, []
        for sprout in data.sprouts:
            peer = state.peers.get(sprout.id)
            now = peer.data if peer is not None and peer.data is not None else sprout
            if sprout.id not in state.gone:
                found.append(now.region(self.address_of(peer.leader if peer else None) or state.address))
        return tuple(found)
