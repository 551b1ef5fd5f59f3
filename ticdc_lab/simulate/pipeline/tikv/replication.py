"""A leader's states go to its followers, and are applied once a majority of the peers holds them.

Nothing is answered and nothing observed before that: what a leader without a majority proposes is seen by nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ticdc_lab.simulate.machine import Address, Send, Wake
from ticdc_lab.simulate.pipeline.tikv.answers import answer
from ticdc_lab.simulate.pipeline.tikv.cdc import observe
from ticdc_lab.simulate.pipeline.tikv.layout import life_of, node_of
from ticdc_lab.simulate.pipeline.tikv.leadership import destroy, outvoted, stepped_down
from ticdc_lab.simulate.pipeline.tikv.raft_messages import Append, Appended
from ticdc_lab.simulate.pipeline.tikv.region_data import Data
from ticdc_lab.simulate.pipeline.tikv.store_state import Due, Entry, Peer
from ticdc_lab.simulate.pipeline.tikv.turn import Turn

APPLY = "apply"
EVER = 1 << 62


def propose(turn: Turn, entries: Iterable[tuple[int, Entry]]) -> None:
    """Take states of regions that this store leads into their logs and send them to the followers.

    The index of an entry is given here.
    """
    changed: list[int] = []
    peers = turn.state.peers.mutate()
    for region, entry in entries:
        peer = peers[region]
        led = peer.led
        assert led is not None
        index = peer.log_index + 1
        led = led._replace(pending=(*led.pending, entry._replace(log_index=index)))
        peers[region] = peer._replace(data=entry.data, last_term=peer.term, log_index=index, led=led)
        changed.append(region)
    turn.state = turn.state._replace(peers=peers.finish())
    replicate(turn, changed)


def replicate(turn: Turn, regions: Sequence[int], to: Sequence[str] | None = None) -> None:
    """Send what is led here to followers, one message each."""
    parcels: dict[str, list[tuple[int, int, int, Data]]] = {}
    for region in regions:
        peer = turn.state.peers[region]
        if peer.led is None or peer.data is None:
            continue
        parcel = (region, peer.last_term, peer.log_index, peer.data)
        for follower in peer.led.followers if to is None else to:
            parcels.setdefault(follower, []).append(parcel)
    for follower, parcel_list in parcels.items():
        turn.send(follower, Append(tuple(parcel_list)))
    for region in regions:
        confirm(turn, region)


def append(turn: Turn, sender: Address, message: Append) -> None:
    """Hold what a leader sends, unless a later one is known."""
    state = turn.state
    leader, newborn = node_of(sender), Peer(None, voter=life_of(state.address) == 1)
    held: list[tuple[int, int, int]] = []
    stale: list[tuple[int, int]] = []
    gone: list[int] = []
    for region, term, index, data in message.regions:
        peer = turn.state.peers.get(region, newborn)
        if region in state.gone:
            gone.append(region)
        elif term < peer.term:
            stale.append((region, peer.term))
        else:
            if (term, index) > (peer.last_term, peer.log_index):
                if peer.led is not None:
                    peer = stepped_down(turn, region, f"{leader} leads it in term {term}", leader)
                turn.put(region, Peer(data, term, term, index, peer.voter, leader))
            if peer.voter:
                held.append((region, term, index))
    turn.out.append(Send(sender, Appended(tuple(held), tuple(stale), tuple(gone))))


def appended(turn: Turn, sender: Address, message: Appended) -> None:
    """Count an answer; what a majority holds is due."""
    follower = node_of(sender)
    for region, term, index in message.held:
        peer = turn.state.peers.get(region)
        if peer is None or peer.led is None or peer.term != term:
            continue
        led = peer.led
        at = led.followers.index(follower)
        if led.acked[at] < index:
            acked = (*led.acked[:at], index, *led.acked[at + 1 :])
            turn.put(region, peer._replace(led=led._replace(acked=acked)))
            confirm(turn, region)
    outvoted(turn, message.stale)
    for region in message.gone:
        destroy(turn, region)


def by_majority(told: Sequence[int]) -> int:
    """Give what a majority of the peers has reached, from what each follower has; the leader has it always."""
    needed = (len(told) + 1) // 2
    return sorted(told, reverse=True)[needed - 1] if needed else EVER


def confirm(turn: Turn, region: int) -> None:
    """Let what a majority holds be applied, now or after the time that applying takes."""
    peer = turn.state.peers[region]
    led = peer.led
    if led is None:
        return
    confirmed = min(by_majority(led.acked), peer.log_index)
    if confirmed <= led.confirmed:
        return
    turn.put(region, peer._replace(led=led._replace(confirmed=confirmed)))
    wait_us = turn.store.settings.apply_us
    if not wait_us:
        apply(turn, region, peer.term, confirmed)
        return
    due = turn.state.due
    if not due:
        turn.out.append(Wake(wait_us, APPLY))
    turn.state = turn.state._replace(due=(*due, Due(turn.now.at_us + wait_us, region, peer.term, confirmed)))


def apply_due(turn: Turn) -> None:
    """Apply what has waited long enough."""
    at_us = turn.now.at_us
    while turn.state.due and turn.state.due[0].at_us <= at_us:
        first, *rest = turn.state.due
        turn.state = turn.state._replace(due=tuple(rest))
        apply(turn, first.region, first.term, first.log_index)
    if turn.state.due:
        turn.out.append(Wake(turn.state.due[0].at_us - at_us, APPLY))


def apply(turn: Turn, region: int, term: int, index: int) -> None:
    """Serve and observe what a majority holds, and answer those who asked for it."""
    peer = turn.state.peers.get(region)
    if peer is None or peer.led is None or peer.term != term:
        return
    led = peer.led
    n = sum(entry.log_index <= index for entry in led.pending)
    if not n:
        return
    entries, before = led.pending[:n], led.applied
    after = entries[-1].data
    turn.put(region, peer._replace(led=led._replace(pending=led.pending[n:], applied=after)))
    for entry in entries:
        if entry.rows and not turn.store.observes_early:
            observe(turn, region, entry.rows)
        if entry.batch:
            answer(turn, region, entry)
    if before is None or before.epoch != after.epoch or before.merging != after.merging:
        turn.changes.append((region, before, after))
