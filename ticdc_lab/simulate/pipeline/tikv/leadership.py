"""How a leader ceases to be one."""

from __future__ import annotations

from collections.abc import Iterable

from ticdc_lab.simulate.machine import Address, Changed
from ticdc_lab.simulate.pipeline.kv_messages import NotLeader, RegionNotFound
from ticdc_lab.simulate.pipeline.tikv.answers import answer
from ticdc_lab.simulate.pipeline.tikv.cdc import end_streams
from ticdc_lab.simulate.pipeline.tikv.raft_messages import Destroy, RegionTerm
from ticdc_lab.simulate.pipeline.tikv.store_state import Peer
from ticdc_lab.simulate.pipeline.tikv.turn import Turn


def stepped_down(turn: Turn, region: int, because: str, leader: str | None = None) -> Peer:
    """Give up a leadership: who waits for an answer is sent elsewhere, streams end.

    What was proposed and not confirmed may come true all the same: the clients ask again, and commands may be repeated.
    """
    peer = turn.state.peers[region]
    led = peer.led
    assert led is not None
    refusal = NotLeader(region, turn.address_of(leader))
    for entry in led.pending:
        if entry.batch:
            answer(turn, region, entry, refusal)
    end_streams(turn, region, refusal)
    turn.out.append(Changed(f"region:{region}", turn.state.name, leader, because))
    peer = peer._replace(led=None, leader=leader)
    turn.put(region, peer)
    return peer


def outvoted(turn: Turn, stale: Iterable[RegionTerm]) -> None:
    """Obey a higher term that a peer knows."""
    for region, term in stale:
        peer = turn.state.peers.get(region)
        if peer is None or term <= peer.term:
            continue
        if peer.led is not None:
            peer = stepped_down(turn, region, f"a peer knows term {term}, which is later than {peer.term}")
        turn.put(region, peer._replace(term=term, votes=None))


def destroyed(turn: Turn, sender: Address, message: Destroy) -> None:
    """Obey the leader of the region that took others in."""
    for region in message.regions:
        destroy(turn, region)


def destroy(turn: Turn, region: int) -> None:
    """Let the peer of a region go that was merged into another; nobody votes in it any more."""
    peer = turn.state.peers.get(region)
    if peer is not None:
        if peer.led is not None:
            for entry in peer.led.pending:
                if entry.batch:
                    answer(turn, region, entry, RegionNotFound(region))
            end_streams(turn, region, RegionNotFound(region))
        turn.state = turn.state._replace(peers=turn.state.peers.delete(region))
    turn.state = turn.state._replace(gone=turn.state.gone.set(region, True))
