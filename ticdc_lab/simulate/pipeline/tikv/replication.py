"""A leader's states go to its followers, and are applied once a majority of the peers holds them.

Nothing is answered and nothing observed before that: what a leader without a majority proposes is seen by nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ticdc_lab.simulate.machine import Address, Send, Wake, node_of
from ticdc_lab.simulate.pipeline.tikv.answers import answer
from ticdc_lab.simulate.pipeline.tikv.cdc import observe
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
    peers, changed = turn.state.peers, dict[int, Peer]()
    for region, (_, data, rows, batch, commands) in entries:
        _, term, _, log_index, voter, leader, led, votes = peers[region]
        assert led is not None
        index = log_index + 1
        led = led.with_pending((*led.pending, Entry(index, data, rows, batch, commands)))
        changed[region] = Peer(data, term, term, index, voter, leader, led, votes)
    turn.write(changed, ((region, peers[region]) for region in changed))
    replicate(turn, list(changed))


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
    confirm(turn, regions)


def append(turn: Turn, sender: Address, message: Append) -> None:
    """Hold what a leader sends, unless a later one is known."""
    state = turn.state
    leader, newborn = node_of(sender), Peer(None, voter=state.whole)
    held: list[tuple[int, int, int]] = []
    stale: list[tuple[int, int]] = []
    gone: list[int] = []
    changed: dict[int, Peer] = {}
    for region, term, index, data in message.regions:
        peer = state.peers.get(region, newborn)
        if region in state.gone:
            gone.append(region)
        elif term < peer.term:
            stale.append((region, peer.term))
        else:
            if (term, index) > (peer.last_term, peer.log_index):
                if peer.led is not None:
                    peer = stepped_down(turn, region, f"{leader} leads it in term {term}", leader)
                changed[region] = Peer(data, term, term, index, peer.voter, leader)
            if peer.voter:
                held.append((region, term, index))
    turn.write(changed, ((region, state.peers.get(region, newborn)) for region in changed))
    turn.out.append(Send(sender, Appended(tuple(held), tuple(stale), tuple(gone))))


def appended(turn: Turn, sender: Address, message: Appended) -> None:
    """Count an answer; what a majority holds is due."""
    follower, peers = node_of(sender), turn.state.peers
    changed: dict[int, Peer] = {}
    for region, term, index in message.held:
        peer = peers.get(region)
        if peer is None or peer.led is None or peer.term != term:
            continue
        led = peer.led
        at = led.followers.index(follower)
        if led.acked[at] < index:
            changed[region] = peer.with_led(
                led.with_held((*led.acked[:at], index, *led.acked[at + 1 :]), led.confirmed)
            )
    turn.put_all(changed)
    confirm(turn, list(changed))
    outvoted(turn, message.stale)
    for region in message.gone:
        destroy(turn, region)


def by_majority(told: Sequence[int]) -> int:
    """Give what a majority of the peers has reached, from what each follower has; the leader has it always."""
    needed = (len(told) + 1) // 2
    return sorted(told, reverse=True)[needed - 1] if needed else EVER


def confirm(turn: Turn, regions: Sequence[int]) -> None:
    """Let what a majority holds be applied, now or after the time that applying takes."""
    wait_us, peers = turn.store.settings.apply_us, turn.state.peers
    at_us = turn.now.at_us + wait_us
    changed: dict[int, Peer] = {}
    due: list[Due] = []
    for region in regions:
        peer = peers[region]
        led = peer.led
        if led is None:
            continue
        confirmed = min(by_majority(led.acked), peer.log_index)
        if confirmed > led.confirmed:
            changed[region] = peer.with_led(led.with_held(led.acked, confirmed))
            due.append(Due(at_us, region, peer.term, confirmed))
    if not due:
        return
    turn.put_all(changed)
    if not wait_us:
        apply(turn, due)
        return
    if not turn.state.due:
        turn.out.append(Wake(wait_us, APPLY))
    turn.state = turn.state._replace(due=(*turn.state.due, *due))


def apply_due(turn: Turn) -> None:
    """Apply what has waited long enough."""
    at_us, due = turn.now.at_us, turn.state.due
    n = sum(one.at_us <= at_us for one in due)
    turn.state = turn.state._replace(due=due[n:])
    apply(turn, due[:n])
    if n < len(due):
        turn.out.append(Wake(due[n].at_us - at_us, APPLY))


def apply(turn: Turn, due: Iterable[Due]) -> None:
    """Serve and observe what a majority holds, and answer those who asked for it."""
    peers = turn.state.peers
    changed: dict[int, Peer] = {}
    applied: list[tuple[int, Data | None, tuple[Entry, ...]]] = []
    for _, region, term, index in due:
        peer = changed.get(region) or peers.get(region)
        if peer is None or peer.led is None or peer.term != term:
            continue
        led = peer.led
        n = sum(entry.log_index <= index for entry in led.pending)
        if n:
            entries = led.pending[:n]
            changed[region] = peer.with_led(led.with_pending(led.pending[n:], entries[-1].data))
            applied.append((region, led.applied, entries))
    turn.put_all(changed)
    for region, before, entries in applied:
        _let_see(turn, region, before, entries)


def _let_see(turn: Turn, region: int, before: Data | None, entries: tuple[Entry, ...]) -> None:
    for entry in entries:
        if entry.rows:
            observe(turn, region, entry.rows)
        if entry.batch:
            answer(turn, region, entry)
    after = entries[-1].data
    if before is None or before.epoch != after.epoch or before.merging != after.merging:
        turn.changes.append((region, before, after))
