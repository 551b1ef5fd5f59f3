"""Split, merge and transfer of a leadership, and what follows when one of them is applied.

A split is one entry of the divided region: with it a majority holds the part that was split off (``sprouts``), which
then elects its own leader. A merge takes two entries: the right region stops taking commands (``merging``); once that
is applied, the left one takes its content in. The next leader of a stopped region continues it.
"""

from __future__ import annotations

from ticdc_lab.machines.machine import Address, Changed, Decided, Send, replace
from ticdc_lab.simulate.pipeline.kv_messages import EpochNotMatch, Merge, RegionHeartbeat, Split, TransferLeader
from ticdc_lab.simulate.pipeline.tables import shown
from ticdc_lab.simulate.pipeline.tikv.cdc import end_streams
from ticdc_lab.simulate.pipeline.tikv.raft import campaign, destroy, propose
from ticdc_lab.simulate.pipeline.tikv.raft_messages import AskSplit, Campaign, Destroy, SplitId
from ticdc_lab.simulate.pipeline.tikv.region_data import PD, Data, part_of, united
from ticdc_lab.simulate.pipeline.tikv.store_state import LogEntry, RegionPeer, StoreTurn


def asked(turn: StoreTurn, command: Split | Merge | TransferLeader) -> None:
    """Take the command of a user, if this store serves the region of its key and the region is not merging."""
    key = command.key
    data = next((d for d in _served(turn) if d.start <= key < d.end), None)
    if data is None:
        turn.out.append(Decided("region", None, f"{turn.state.name} does not serve the region of {shown(key)}"))
    elif isinstance(command, TransferLeader):
        # Let another store campaign; that it asks for votes is how this one hears of it.
        if command.to not in data.peers or command.to == turn.state.name:
            turn.out.append(Decided(f"region:{data.id}", None, f"{command.to} is no follower of region {data.id}"))
            return
        turn.out.append(Decided(f"region:{data.id}", command.to, f"its leadership is to go to {command.to}"))
        turn.send(command.to, Campaign((data.id,), f"{turn.state.name} gave its place up"))
    elif data.merging is not None or any(d.merging == data.id for d in _served(turn)):
        turn.out.append(Decided(f"region:{data.id}", None, "a merge is under way"))
    elif isinstance(command, Split):
        if key == data.start:
            turn.out.append(Decided(f"region:{data.id}", None, f"it begins at {shown(key)} already"))
            return
        turn.out.append(Decided(f"region:{data.id}", shown(key), "it is to be divided here"))
        turn.out.append(Send(PD, AskSplit(data.id, data.epoch, key)))
    else:
        # Begin a merge: the right neighbour takes nothing any more, so that its content is known.
        right = next((d for d in _served(turn) if d.start == data.end), None)
        if right is None or right.merging is not None or set(right.peers) != set(data.peers):
            because = f"{turn.state.name} does not serve its right neighbour on the same stores, or that is merging"
            turn.out.append(Decided(f"region:{data.id}", None, because))
            return
        turn.out.append(Decided(f"region:{data.id}", f"region:{right.id}", "it is to take its right neighbour in"))
        propose(turn, [(right.id, LogEntry(0, replace(right, merging=data.id)))])


def _served(turn: StoreTurn) -> list[Data]:
    """Give the regions that are led and served here, as they are proposed."""
    return [p.data for _, p in turn.led() if p.led and p.led.applied and p.data]


def split(turn: StoreTurn, sender: Address, message: SplitId) -> None:
    """Divide a region at a key with the id that PD gave, if it is still the same region."""
    region, epoch, key, new = message
    peer = turn.state.peers.get(region)
    data = peer.data if peer and peer.led else None
    if data is None or data.epoch != epoch or data.merging is not None:
        turn.out.append(Decided(f"region:{region}", None, "it is another one than when the split was asked for"))
        return
    right = replace(part_of(data, key, data.end), id=new, epoch=epoch + 1, sprouts=(), absorbed=())
    left = replace(part_of(data, data.start, key), epoch=epoch + 1)
    propose(turn, [(region, LogEntry(0, replace(left, sprouts=(*_unled(turn, data.sprouts), right))))])


def _unled(turn: StoreTurn, sprouts: tuple[Data, ...]) -> tuple[Data, ...]:
    """Leave out what a majority holds by itself: parts that are served here."""
    served = {d.id for d in _served(turn)}
    return tuple(s for s in sprouts if s.id not in served)


def merge_on(turn: StoreTurn, right: Data) -> None:
    """Continue a merge: the left region takes the right one in, or the right one resumes by itself."""
    left_id = right.merging
    peer = turn.state.peers.get(left_id) if left_id is not None else None
    if peer is None or peer.data is None or left_id is None:
        turn.out.append(Decided(f"region:{right.id}", None, f"region {left_id} is not here"))
    elif peer.led is None:
        campaign(turn, [left_id], f"region {right.id} is being merged into it")
    elif peer.led.applied is not None and right.id not in peer.data.absorbed:
        left = peer.data
        if left.end == right.start and left.merging is None:
            propose(turn, [(left_id, LogEntry(0, united(left, right)))])
        else:
            propose(turn, [(right.id, LogEntry(0, replace(right, merging=None, epoch=right.epoch + 1)))])


def merges_on(turn: StoreTurn) -> None:
    """Continue every stalled merge."""
    for _, peer in turn.led():
        applied = peer.led.applied if peer.led else None
        if applied is not None and applied.merging is not None and peer.data is applied:
            merge_on(turn, applied)


def changed(turn: StoreTurn, region: int, before: Data | None, after: Data) -> None:
    """A region came to be served here, or is another one now: inform streams and PD, and do what is next."""
    name, peer = turn.state.name, turn.state.peers.get(region)
    if peer is None or peer.led is None:
        return
    if before is None:
        turn.out.append(Changed(f"region:{region}", None, name, f"{peer.led.because} (term {peer.term})"))
    else:
        turn.out.append(Changed(f"region:{region}", _shown(before), _shown(after), _what(before, after)))
    absorbed = [r for r in after.absorbed if r in turn.state.peers]
    for gone in absorbed:
        destroy(turn, gone)
        for follower in peer.led.followers:
            turn.send(follower, Destroy((gone,)))
    if before is not None:
        _is_another(turn, region, after)
    young = _sprouted(turn, after)
    report(turn, tuple(absorbed), young)
    campaign(turn, [d.id for d in young], f"it was split off region {region}")
    merges_on(turn)


def _is_another(turn: StoreTurn, region: int, after: Data) -> None:
    """End the streams of a region that has another range or stops, and restart its resolved_ts.

    What was taken in may have locks below the resolved_ts that was sent for the rest.
    """
    regions = (after.region(turn.state.address), *turn.parts_of(after))
    end_streams(turn, region, turn.not_leader(region) if after.merging else EpochNotMatch(region, regions))
    peer = turn.state.peers[region]
    if peer.led is not None:
        turn.put(region, peer._replace(led=peer.led._replace(resolved_ts=0)))


def _sprouted(turn: StoreTurn, data: Data) -> list[Data]:
    """Hold what was split off and is not known here; give what has no leader as far as is known."""
    state = turn.state
    young = [s for s in data.sprouts if s.id not in state.gone]
    for sprout in young:
        known = state.peers.get(sprout.id)
        if known is None:
            turn.put(sprout.id, RegionPeer(sprout, voter=state.whole))
        elif known.data is None:
            turn.put(sprout.id, known._replace(data=sprout))
    peers = turn.state.peers
    return [s for s in young if peers[s.id].last_term == 0 and peers[s.id].leader is None]


def _shown(data: Data) -> str:
    return f"{shown(data.start)}..{shown(data.end)}, epoch {data.epoch}{', stopped' if data.merging else ''}"


def _what(before: Data, after: Data) -> str:
    if after.end < before.end:
        return f"it was divided; region {after.sprouts[-1].id} has the rest"
    if after.end > before.end:
        return f"it took region {after.absorbed[-1]} in"
    return f"it stops, to be merged into region {after.merging}" if after.merging else "its merge was given up"


def report(turn: StoreTurn, gone: tuple[int, ...] = (), young: list[Data] | None = None) -> None:
    """Report to PD what is led here: regions whose leadership a majority confirmed of late, and new parts of them."""
    half_us = turn.store.settings.store_down_us // 2
    regions, terms, peers = [], [], []
    for _, peer in turn.led():
        led = peer.led
        if led is None or led.applied is None or (turn.now.at_us - led.confirmed_us > half_us and led.followers):
            continue
        regions.append(led.applied.region(turn.state.address))
        terms.append(peer.term)
        peers.append(led.applied.peers)
    for part in young or ():
        regions.append(part.region(turn.state.address))
        terms.append(0)
        peers.append(part.peers)
    turn.out.append(Send(PD, RegionHeartbeat(tuple(regions), gone, tuple(terms), tuple(peers))))
