"""Is this store still the leader, and up to which resolved_ts: asked of the followers every ``resolved_us``.

Why nothing is committed at or below a resolved_ts for the first time after it. Let ``sent_us`` be the moment when the
question was sent and ``ts = before(ts_of(sent_us))``. A client takes its commit_ts when all its prewrites were
answered, so of a commit_ts at or below ``ts`` they were answered before ``sent_us``, by a leader to which a majority
had confirmed them:

- a later leader: a majority had promised its term before ``sent_us``, and no majority would have agreed to this one;
- this one: it had applied them, as it answers only what is applied;
- an earlier one: a majority held them when this one was elected, so they are in the state with which it began.

So each such transaction holds a lock in what is applied when the majority has answered, and resolved_ts stays below the
start_ts of every lock; or its commit or rollback is applied, hence already streamed, in front of the resolved_ts.
A region that stopped in order to be merged advances no more: its keys may be written elsewhere.
A lock that comes later with a start_ts below a told resolved_ts does no harm: its commit_ts is later than ``sent_us``.
"""

from __future__ import annotations

from ticdc_lab.simulate.machine import Address, Send, Wake, node_of
from ticdc_lab.simulate.pipeline.tikv.cdc import tell_resolved
from ticdc_lab.simulate.pipeline.tikv.leadership import destroy, outvoted, stepped_down
from ticdc_lab.simulate.pipeline.tikv.raft_messages import Admit, CheckedLeader, CheckLeader
from ticdc_lab.simulate.pipeline.tikv.replication import by_majority, replicate
from ticdc_lab.simulate.pipeline.tikv.store_state import Led, Peer
from ticdc_lab.simulate.pipeline.tikv.turn import Turn
from ticdc_lab.simulate.scheduler.clock import before, ts_of

RESOLVE = "resolve"


def ask_followers(turn: Turn) -> None:
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


def is_lost(turn: Turn, led: Led) -> bool:
    """Whether no majority has confirmed a leader for so long that PD may have let another be elected."""
    return turn.now.at_us - led.confirmed_us > turn.store.settings.store_down_us


def check_leader(turn: Turn, sender: Address, message: CheckLeader) -> None:
    """Say which of a leader's regions it leads as far as this store knows, and what is missing here."""
    leader, voter = node_of(sender), turn.state.whole
    peers, gone = turn.state.peers, turn.state.gone
    agreed, lacking, learning, stale = [], [], [], []
    for region, term, index in message.regions:
        peer = peers.get(region)
        if peer is None or term > peer.term:
            if region in gone:
                continue
            peer = peer or Peer(None, voter=voter)
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


def checked_leader(turn: Turn, sender: Address, message: CheckedLeader) -> None:
    """Advance resolved_ts where a majority has agreed, and send what a follower lacks."""
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


def _agreed(turn: Turn, region: int, follower: str, sent_us: int) -> bool:
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


def _advance(turn: Turn, region: int, sent_us: int) -> None:
    peer = turn.state.peers[region]
    led = peer.led
    if led is None or led.applied is None or led.applied.merging is not None:
        return
    ts = before(ts_of(sent_us))
    if led.applied.locks:
        ts = min(ts, before(min(lock[0] for lock in led.applied.locks.values())))
    if ts > led.resolved_ts:
        turn.put(region, peer._replace(led=led._replace(resolved_ts=ts)))


def _admit(turn: Turn, region: int, follower: str) -> None:
    """Let a peer that began empty vote, once a majority without it has confirmed the leader after it had caught up.

    Whatever it promised in its former life, it promised before that; and the others would have told a later term.
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


def admitted(turn: Turn, sender: Address, message: Admit) -> None:
    """Vote from now on."""
    for region, term in message.regions:
        peer = turn.state.peers.get(region)
        if peer is not None and peer.term == term:
            turn.put(region, peer._replace(voter=True))
