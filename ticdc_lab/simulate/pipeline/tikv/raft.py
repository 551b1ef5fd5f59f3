"""How the replicas of a region agree: proposals and what is applied, elections, and the lease of a leader."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ticdc_lab.machines.clock import before, ts_of
from ticdc_lab.machines.machine import Address, Changed, Send, Wake, node_of
from ticdc_lab.simulate.pipeline.kv_messages import BatchResponses, NotLeader, Refusal, RegionNotFound
from ticdc_lab.simulate.pipeline.tikv.cdc import end_streams, observe, tell_resolved
from ticdc_lab.simulate.pipeline.tikv.raft_messages import (
    Admit,
    Append,
    Appended,
    CheckedLeader,
    CheckLeader,
    Destroy,
    RegionTerm,
    Vote,
    Voted,
)
from ticdc_lab.simulate.pipeline.tikv.region_data import Data
from ticdc_lab.simulate.pipeline.tikv.store_state import Due, Led, LogEntry, OpenBatch, RegionPeer, StoreTurn, Votes

# The answers that clients of a store wait for.


def answer(turn: StoreTurn, region: int, entry: LogEntry, refusal: Refusal | None = None) -> None:
    """Note that a region's part of a batch is done or refused, and answer the client after the last."""
    batch = turn.state.batches.get(entry.batch)
    if batch is None:
        return
    client, number, results, left = batch
    left -= {region}
    if refusal is not None:
        results = tuple(refusal if i in entry.commands else r for i, r in enumerate(results))
    if left:
        batches = turn.state.batches.set(entry.batch, OpenBatch(client, number, results, left))
    else:
        turn.out.append(Send(client, BatchResponses(number, results)))
        batches = turn.state.batches.delete(entry.batch)
    turn.state = turn.state._replace(batches=batches)


# How a leader ceases to be one.


def stepped_down(turn: StoreTurn, region: int, because: str, leader: str | None = None) -> RegionPeer:
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


def outvoted(turn: StoreTurn, stale: Iterable[RegionTerm]) -> None:
    """Obey a higher term that a peer knows."""
    for region, term in stale:
        peer = turn.state.peers.get(region)
        if peer is None or term <= peer.term:
            continue
        if peer.led is not None:
            peer = stepped_down(turn, region, f"a peer knows term {term}, which is later than {peer.term}")
        turn.put(region, peer._replace(term=term, votes=None))


def destroyed(turn: StoreTurn, sender: Address, message: Destroy) -> None:
    """Obey the leader of the region that took others in."""
    for region in message.regions:
        destroy(turn, region)


def destroy(turn: StoreTurn, region: int) -> None:
    """Let the peer of a region go that was merged into another; it has no votes any more."""
    peer = turn.state.peers.get(region)
    if peer is not None:
        if peer.led is not None:
            for entry in peer.led.pending:
                if entry.batch:
                    answer(turn, region, entry, RegionNotFound(region))
            end_streams(turn, region, RegionNotFound(region))
        turn.state = turn.state._replace(peers=turn.state.peers.delete(region))
    turn.state = turn.state._replace(gone=turn.state.gone.set(region, True))


# A leader's states go to its followers, and are applied once a majority of the peers holds them.
#
# Nothing is answered and nothing observed before that: what a leader without a majority proposes is not seen.

APPLY = "apply"
EVER = 1 << 62


def propose(turn: StoreTurn, entries: Iterable[tuple[int, LogEntry]]) -> None:
    """Take states of regions that this store leads into their logs and send them to the followers.

    The index of an entry is given here.
    """
    peers, changed = turn.state.peers, dict[int, RegionPeer]()
    for region, (_, data, rows, batch, commands) in entries:
        _, term, _, log_index, voter, leader, led, votes = peers[region]
        assert led is not None
        index = log_index + 1
        led = led.with_pending((*led.pending, LogEntry(index, data, rows, batch, commands)))
        changed[region] = RegionPeer(data, term, term, index, voter, leader, led, votes)
    turn.write(changed, ((region, peers[region]) for region in changed))
    replicate(turn, list(changed))


def replicate(turn: StoreTurn, regions: Sequence[int], to: Sequence[str] | None = None) -> None:
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


def append(turn: StoreTurn, sender: Address, message: Append) -> None:
    """Hold what a leader sends, unless a later one is known."""
    state = turn.state
    leader, newborn = node_of(sender), RegionPeer(None, voter=state.whole)
    held: list[tuple[int, int, int]] = []
    stale: list[tuple[int, int]] = []
    gone: list[int] = []
    changed: dict[int, RegionPeer] = {}
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
                changed[region] = RegionPeer(data, term, term, index, peer.voter, leader)
            if peer.voter:
                held.append((region, term, index))
    turn.write(changed, ((region, state.peers.get(region, newborn)) for region in changed))
    turn.out.append(Send(sender, Appended(tuple(held), tuple(stale), tuple(gone))))


def appended(turn: StoreTurn, sender: Address, message: Appended) -> None:
    """Count an answer; what a majority holds is due."""
    follower, peers = node_of(sender), turn.state.peers
    changed: dict[int, RegionPeer] = {}
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


def confirm(turn: StoreTurn, regions: Sequence[int]) -> None:
    """Let what a majority holds be applied, now or after the time that applying takes."""
    wait_us, peers = turn.store.settings.apply_us, turn.state.peers
    at_us = turn.now.at_us + wait_us
    changed: dict[int, RegionPeer] = {}
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


def apply_due(turn: StoreTurn) -> None:
    at_us, due = turn.now.at_us, turn.state.due
    n = sum(one.at_us <= at_us for one in due)
    turn.state = turn.state._replace(due=due[n:])
    apply(turn, due[:n])
    if n < len(due):
        turn.out.append(Wake(due[n].at_us - at_us, APPLY))


def apply(turn: StoreTurn, due: Iterable[Due]) -> None:
    """Serve and observe what a majority holds, and answer those who asked for it."""
    peers = turn.state.peers
    changed: dict[int, RegionPeer] = {}
    applied: list[tuple[int, Data | None, tuple[LogEntry, ...]]] = []
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
    for region, applied_before, entries in applied:
        for entry in entries:
            if entry.rows:
                observe(turn, region, entry.rows)
            if entry.batch:
                answer(turn, region, entry)
        after = entries[-1].data
        if applied_before is None or applied_before.epoch != after.epoch or applied_before.merging != after.merging:
            turn.changes.append((region, applied_before, after))


# Elections: a candidate asks for what the others have, and continues from the newest once a majority has answered.
#
# What was acknowledged is held by a majority, and two majorities share a peer: the newest of a majority's states has
# it. Raft lets only the peer with the newest log win; here the winner fetches it, which leads to the same state. A
# peer that began empty (its disk is gone) or lost its last write neither votes nor counts: it may have forgotten a
# vote or a state.


def campaign(turn: StoreTurn, regions: Sequence[int], because: str) -> None:
    """Campaign where this store has a peer that may vote and does not lead."""
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


def vote(turn: StoreTurn, sender: Address, message: Vote) -> None:
    """Promise to obey no earlier leader, and send what is here."""
    newborn = RegionPeer(None, voter=turn.state.whole)
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
                peer = stepped_down(turn, region, f"{node_of(sender)} is a candidate in term {term}")
            turn.put(region, peer._replace(term=term, leader=None, votes=None))
            if peer.voter:
                granted.append((region, term, peer.last_term, peer.log_index, peer.data))
    turn.out.append(Send(sender, Voted(tuple(granted), tuple(stale), tuple(gone))))


def voted(turn: StoreTurn, sender: Address, message: Voted) -> None:
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


def _won(turn: StoreTurn, regions: Sequence[int]) -> None:
    """Lead from now on, with the newest that the voters hold; serve when a majority holds it in the new term."""
    entries: list[tuple[int, LogEntry]] = []
    for region in regions:
        peer = turn.state.peers[region]
        if peer.votes is None or peer.votes.term != peer.term:
            continue
        _, last_term, index, data = max(peer.votes.votes, key=lambda v: (v[3] is not None, v[1], v[2]))
        assert data is not None
        followers = tuple(p for p in data.peers if p != turn.state.name)
        nothing = (0,) * len(followers)
        led = Led(followers, nothing, nothing, (), 0, turn.now.at_us, None, because=peer.votes.because)
        turn.put(region, RegionPeer(data, peer.term, last_term, index, True, turn.state.name, led))
        entries.append((region, LogEntry(0, data)))
    if entries:
        propose(turn, entries)


# Is this store still the leader, and up to which resolved_ts: asked of the followers every ``resolved_us``.
#
# Why nothing is committed at or below a resolved_ts for the first time after it. Let ``sent_us`` be the moment when
# the question was sent and ``ts = before(ts_of(sent_us))``. A client takes its commit_ts when all its prewrites were
# answered, so of a commit_ts at or below ``ts`` they were answered before ``sent_us``, by a leader to which a
# majority had confirmed them:
#
# - a later leader: a majority had promised its term before ``sent_us``, and no majority would have agreed to this one;
# - this one: it had applied them, as it answers only what is applied;
# - an earlier one: a majority held them when this one was elected, so they are in the state with which it began.
#
# So each such transaction holds a lock in what is applied when the majority has answered, and resolved_ts stays below
# the start_ts of every lock; or its commit or rollback is applied, hence already streamed, in front of the
# resolved_ts. A region that stopped in order to be merged advances no more: its keys may be written elsewhere. A lock
# that comes later with a start_ts below a sent resolved_ts does no harm: its commit_ts is later than ``sent_us``.

RESOLVE = "resolve"


def ask_followers(turn: StoreTurn) -> None:
    """Ask the followers of all regions led here; give up what no majority has confirmed for too long."""
    turn.out.append(Wake(turn.store.settings.resolved_us, RESOLVE))
    now_us = turn.now.at_us
    asked: dict[str, list[tuple[int, int, int]]] = {}
    alone: list[int] = []
    for region, peer in turn.led():
        led = peer.led
        assert led is not None
        if led.followers and is_lost(turn, led):
            stepped_down(turn, region, "no majority has confirmed its leadership for too long")
            continue
        if not led.followers:
            alone.append(region)
        for follower in led.followers:
            asked.setdefault(follower, []).append((region, peer.term, peer.log_index))
    for follower, regions in asked.items():
        turn.send(follower, CheckLeader(now_us, tuple(regions)))
    for region in alone:
        _advance(turn, region, now_us)
    tell_resolved(turn, alone)


def is_lost(turn: StoreTurn, led: Led) -> bool:
    """Whether no majority has confirmed a leader for so long that PD may have let another be elected."""
    return turn.now.at_us - led.confirmed_us > turn.store.settings.store_down_us


def check_leader(turn: StoreTurn, sender: Address, message: CheckLeader) -> None:
    """Find which of a leader's regions it leads as far as this store knows, and what is missing here."""
    leader, voter = node_of(sender), turn.state.whole
    peers, gone = turn.state.peers, turn.state.gone
    agreed, lacking, learning, stale = [], [], [], []
    for region, term, index in message.regions:
        peer = peers.get(region)
        if peer is None or term > peer.term:
            if region in gone:
                continue
            peer = peer or RegionPeer(None, voter=voter)
            if peer.led is not None:
                peer = stepped_down(turn, region, f"{leader} leads it in term {term}", leader)
            peer = peer._replace(term=term, leader=leader, votes=None)
            turn.put(region, peer)
        elif term < peer.term:
            stale.append((region, peer.term))
            continue
        holds = (peer.last_term, peer.log_index) >= (term, index)
        if not holds:
            lacking.append(region)
        if peer.voter:
            agreed.append(region)
        elif holds:
            learning.append(region)
    left = tuple(r for r, _, _ in message.regions if r in gone)
    answer = CheckedLeader(message.sent_us, tuple(agreed), tuple(lacking), tuple(learning), tuple(stale), left)
    turn.out.append(Send(sender, answer))


def checked_leader(turn: StoreTurn, sender: Address, message: CheckedLeader) -> None:
    """Advance resolved_ts where a majority has agreed, and send what a follower misses."""
    follower, sent_us = node_of(sender), message.sent_us
    advanced = [r for r in message.agreed if _agreed(turn, r, follower, sent_us)]
    tell_resolved(turn, advanced)
    outvoted(turn, message.stale)
    if message.lacking:
        replicate(turn, [r for r in message.lacking if r in turn.state.peers], (follower,))
    for region in message.learning:
        _admit(turn, region, follower)
    for region in message.gone:
        destroy(turn, region)


def _agreed(turn: StoreTurn, region: int, follower: str, sent_us: int) -> bool:
    peer = turn.state.peers.get(region)
    if peer is None or peer.led is None or follower not in peer.led.followers:
        return False
    led = peer.led
    at = led.followers.index(follower)
    if led.checked_us[at] >= sent_us:
        return False
    checked_us = (*led.checked_us[:at], sent_us, *led.checked_us[at + 1 :])
    confirmed_us = by_majority(checked_us)
    later = confirmed_us > led.confirmed_us
    led = led._replace(checked_us=checked_us, confirmed_us=max(led.confirmed_us, confirmed_us))
    turn.put(region, peer._replace(led=led))
    if later:
        _advance(turn, region, confirmed_us)
    return later


def _advance(turn: StoreTurn, region: int, sent_us: int) -> None:
    peer = turn.state.peers[region]
    led = peer.led
    if led is None or led.applied is None or led.applied.merging is not None:
        return
    ts = before(ts_of(sent_us))
    if led.applied.locks:
        ts = min(ts, before(min(lock[0] for lock in led.applied.locks.values())))
    if ts > led.resolved_ts:
        turn.put(region, peer._replace(led=led._replace(resolved_ts=ts)))


def _admit(turn: StoreTurn, region: int, follower: str) -> None:
    """Let a peer that began empty vote, once a majority without it has confirmed the leader after it had caught up.

    All promises of its former life are older; and the others would have sent a later term.
    """
    peer = turn.state.peers.get(region)
    if peer is None or peer.led is None:
        return
    led = peer.led
    since_us = dict(led.learning).get(follower)
    if since_us is None:
        learning = (*led.learning, (follower, turn.now.at_us))
        turn.put(region, peer._replace(led=led._replace(learning=learning)))
    elif led.confirmed_us > since_us:
        learning = tuple(entry for entry in led.learning if entry[0] != follower)
        turn.put(region, peer._replace(led=led._replace(learning=learning)))
        turn.send(follower, Admit(((region, peer.term),)))


def admitted(turn: StoreTurn, sender: Address, message: Admit) -> None:
    for region, term in message.regions:
        peer = turn.state.peers.get(region)
        if peer is not None and peer.term == term:
            turn.put(region, peer._replace(voter=True))
