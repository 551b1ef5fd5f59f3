"""Elections: a candidate asks for what the others hold, and goes on from the newest once a majority has answered.

What was acknowledged is held by a majority, and two majorities share a peer: the newest of a majority's states has it.
Raft lets only the peer with the newest log win; here the winner fetches it, which leads to the same state.
A peer that began empty (its disk is gone) or lost its last write neither votes nor counts: it may have forgotten a vote
or a state.
"""

from __future__ import annotations

from collections.abc import Sequence

from ticdc_lab.simulate.machine import Address, Send, node_of
from ticdc_lab.simulate.pipeline.tikv.leadership import destroy, outvoted, stepped_down
from ticdc_lab.simulate.pipeline.tikv.raft_messages import Vote, Voted
from ticdc_lab.simulate.pipeline.tikv.region_data import Data
from ticdc_lab.simulate.pipeline.tikv.replication import propose
from ticdc_lab.simulate.pipeline.tikv.store_state import Entry, Led, Peer, Votes
from ticdc_lab.simulate.pipeline.tikv.turn import Turn


def campaign(turn: Turn, regions: Sequence[int], because: str) -> None:
    """Stand for election where this store holds a peer that may vote and does not lead."""
    asked: dict[str, list[tuple[int, int]]] = {}
    alone: list[int] = []
    name = turn.state.name
    for region in regions:
        peer = turn.state.peers.get(region)
        if peer is None or peer.led is not None or not peer.voter or peer.data is None:
            continue
        term = peer.term + 1
        votes = Votes(term, ((name, peer.last_term, peer.log_index, peer.data),), because)
        turn.put(region, peer._replace(term=term, leader=None, votes=votes))
        others = [p for p in peer.data.peers if p != name]
        for other in others:
            asked.setdefault(other, []).append((region, term))
        if not others:
            alone.append(region)
    for store, votes_asked in asked.items():
        turn.send(store, Vote(tuple(votes_asked)))
    _won(turn, alone)


def vote(turn: Turn, sender: Address, message: Vote) -> None:
    """Promise to obey no earlier leader, and tell what is held here."""
    newborn = Peer(None, voter=turn.state.whole)
    granted: list[tuple[int, int, int, int, Data | None]] = []
    stale: list[tuple[int, int]] = []
    gone: list[int] = []
    for region, term in message.regions:
        peer = turn.state.peers.get(region, newborn)
        if region in turn.state.gone:
            gone.append(region)
        elif term <= peer.term:
            stale.append((region, peer.term))
        else:
            if peer.led is not None:
                peer = stepped_down(turn, region, f"{node_of(sender)} stands for election in term {term}")
            turn.put(region, peer._replace(term=term, leader=None, votes=None))
            if peer.voter:
                granted.append((region, term, peer.last_term, peer.log_index, peer.data))
    turn.out.append(Send(sender, Voted(tuple(granted), tuple(stale), tuple(gone))))


def voted(turn: Turn, sender: Address, message: Voted) -> None:
    """Count votes; a majority makes a leader."""
    won: list[int] = []
    voter = node_of(sender)
    for region, term, last_term, index, data in message.granted:
        peer = turn.state.peers.get(region)
        if peer is None or peer.votes is None or peer.votes.term != term or peer.data is None:
            continue
        if any(v[0] == voter for v in peer.votes.votes):
            continue
        votes = peer.votes._replace(votes=(*peer.votes.votes, (voter, last_term, index, data)))
        turn.put(region, peer._replace(votes=votes))
        if len(votes.votes) > len(peer.data.peers) // 2:
            won.append(region)
    outvoted(turn, message.stale)
    for region in message.gone:
        destroy(turn, region)
    _won(turn, [r for r in won if r in turn.state.peers])


def _won(turn: Turn, regions: Sequence[int]) -> None:
    """Lead from now on, with the newest that the voters hold; serve when a majority holds it in the new term."""
    entries: list[tuple[int, Entry]] = []
    for region in regions:
        peer = turn.state.peers[region]
        if peer.votes is None or peer.votes.term != peer.term:
            continue
        _, last_term, index, data = max(peer.votes.votes, key=lambda v: (v[3] is not None, v[1], v[2]))
        assert data is not None
        followers = tuple(p for p in data.peers if p != turn.state.name)
        nothing = (0,) * len(followers)
        led = Led(followers, nothing, nothing, (), 0, turn.now.at_us, None, because=peer.votes.because)
        turn.put(region, Peer(data, peer.term, last_term, index, True, turn.state.name, led))
        entries.append((region, Entry(0, data)))
    if entries:
        propose(turn, entries)
