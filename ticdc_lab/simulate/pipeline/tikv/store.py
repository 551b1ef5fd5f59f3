"""The machine of a TiKV store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from immutables import Map

from ticdc_lab.machines.machine import (
    Address,
    Asked,
    Event,
    Fired,
    Ignored,
    Now,
    Output,
    Received,
    ReceivedMany,
    Wake,
    life_of,
    node_of,
    not_taken,
)
from ticdc_lab.simulate.faults import KEPT, LOST, TORN
from ticdc_lab.simulate.pipeline.cdc_messages import Deregister, Register
from ticdc_lab.simulate.pipeline.kv_messages import BatchCommands, KvRegion, Merge, Split, TransferLeader
from ticdc_lab.simulate.pipeline.settings import TikvSettings
from ticdc_lab.simulate.pipeline.tikv import cdc, percolator, raft, region_changes
from ticdc_lab.simulate.pipeline.tikv.raft_messages import (
    Admit,
    Append,
    Appended,
    Campaign,
    CheckedLeader,
    CheckLeader,
    Destroy,
    SplitId,
    Stores,
    Vote,
    Voted,
)
from ticdc_lab.simulate.pipeline.tikv.region_data import Data, peers_of
from ticdc_lab.simulate.pipeline.tikv.store_state import Led, RegionPeer, StoreTurn, TikvStoreState

HEARTBEAT = "heartbeat"


@dataclass(frozen=True, slots=True)
class TikvStore:
    """The machine of nodes ``tikv-1``, ...: regions, Percolator, raft-lite, and the CDC component."""

    settings: TikvSettings  # of the upstream
    stores: tuple[str, ...]  # names of all stores
    regions: tuple[KvRegion, ...]  # the regions at first; their leaders are names of stores

    def start(self, address: Address, now: Now) -> tuple[TikvStoreState, list[Output]]:
        name = node_of(address)
        peers = {r.id: p for r in self.regions if (p := self._first_peer(r, name, now)) is not None}
        return self._begun(self._fresh(address, name, Map(peers)), now)

    def again(
        self, address: Address, before: TikvStoreState, disk: str, now: Now
    ) -> tuple[TikvStoreState, list[Output]]:
        """Resume with what the disk has: logs, terms and votes; nothing is led, and no stream or question is known.

        Of a torn write it is not known whether it was acknowledged: its regions are as before it, and do not vote.
        """
        state = self._fresh(address, before.name, Map(), whole=before.whole and disk == KEPT)
        if disk != LOST:
            torn = dict(before.written) if disk == TORN else {}
            peers = ((region, _on_disk(peer, torn.get(region))) for region, peer in sorted(before.peers.items()))
            state = state._replace(peers=Map(peers), gone=before.gone)
        return self._begun(state, now)

    def _fresh(self, address: Address, name: str, peers: Map[int, RegionPeer], *, whole: bool = True) -> TikvStoreState:
        return TikvStoreState(address, name, peers, Map({s: s for s in self.stores}), whole=whole)

    def _begun(self, state: TikvStoreState, now: Now) -> tuple[TikvStoreState, list[Output]]:
        turn = StoreTurn(self, state, now)
        region_changes.report(turn)
        wakes = [Wake(self.settings.resolved_us, raft.RESOLVE), Wake(self.heartbeat_us, HEARTBEAT)]
        return turn.state, [*turn.out, *wakes]

    @property
    def heartbeat_us(self) -> int:
        """How often PD hears of a store."""
        return max(1, self.settings.store_down_us // 6)

    def _first_peer(self, region: KvRegion, name: str, now: Now) -> RegionPeer | None:
        stores = peers_of(region, self.settings, self.stores)
        if name not in stores:
            return None
        data = Data(region.id, region.start, region.end, region.epoch, stores)
        followers = stores[1:]
        nothing = (0,) * len(followers)
        led = Led(followers, nothing, nothing, (), 0, now.at_us, data) if region.leader == name else None
        return RegionPeer(data, 1, 1, 0, True, region.leader, led)

    def step(self, state: TikvStoreState, event: Event, now: Now) -> tuple[TikvStoreState, list[Output]]:
        turn = StoreTurn(self, state, now)
        if isinstance(event, Received):
            self._received(turn, event.sender, event.message)
        elif isinstance(event, ReceivedMany):
            for message in event.messages:
                self._received(turn, event.sender, message)
        elif isinstance(event, Fired):
            self._fired(turn, event.name)
        elif isinstance(event, Asked) and isinstance(event.command, (Split, Merge, TransferLeader)):
            region_changes.asked(turn, event.command)
        else:
            raise not_taken(event.command, state.name)
        while turn.changes:
            region_changes.changed(turn, *turn.changes.pop(0))
        return turn.state, turn.out

    def _received(self, turn: StoreTurn, sender: Address, message: Any) -> None:
        taken = _MESSAGES.get(type(message))
        if taken is None:
            turn.out.append(Ignored(message, "a store has no use for it"))
            return
        name = node_of(sender)
        known = turn.state.addresses.get(name)
        if known is not None and known != sender and life_of(sender) > life_of(known):
            turn.state = turn.state._replace(addresses=turn.state.addresses.set(name, sender))
        taken(turn, sender, message)

    def _fired(self, turn: StoreTurn, name: Any) -> None:
        if name == raft.APPLY:
            raft.apply_due(turn)
        elif name == raft.RESOLVE:
            raft.ask_followers(turn)
        elif name == HEARTBEAT:
            region_changes.merges_on(turn)
            region_changes.report(turn)
            turn.out.append(Wake(self.heartbeat_us, HEARTBEAT))
        elif name == "resumed":
            # Begin again with what is on disk: a process that comes back leads nothing; where no other led, it
            # campaigns.
            led = [region for region, _ in turn.led()]
            because = f"{turn.state.name} was not there for a while"
            for region in led:
                raft.stepped_down(turn, region, because)
            raft.campaign(turn, led, f"{because} and led it before")
        elif isinstance(name, tuple) and name[0] == cdc.SCAN:
            cdc.scan(turn, *name[1:])


def _on_disk(peer: RegionPeer, before: RegionPeer | None) -> RegionPeer:
    """Give what a peer is in the next life of its store; ``before`` is how it was before a torn write."""
    peer = peer._replace(led=None, votes=None, leader=None)
    if before is None:
        return peer
    return peer._replace(data=before.data, last_term=before.last_term, log_index=before.log_index, voter=False)


def _stores(turn: StoreTurn, sender: Address, message: Stores) -> None:
    addresses = turn.state.addresses
    newer = {name: at for name, at in message.addresses if life_of(at) > life_of(addresses.get(name, name))}
    turn.state = turn.state._replace(addresses=addresses.update(newer))


_MESSAGES: Mapping[type, Callable[[StoreTurn, Address, Any], None]] = MappingProxyType(
    {
        BatchCommands: percolator.take_batch,
        Append: raft.append,
        Appended: raft.appended,
        CheckLeader: raft.check_leader,
        CheckedLeader: raft.checked_leader,
        Vote: raft.vote,
        Voted: raft.voted,
        Campaign: lambda turn, _, message: raft.campaign(turn, message.regions, message.because),
        Admit: raft.admitted,
        Destroy: raft.destroyed,
        Stores: _stores,
        SplitId: region_changes.split,
        Register: cdc.register,
        Deregister: cdc.deregister,
    }
)
"""What takes each message."""
