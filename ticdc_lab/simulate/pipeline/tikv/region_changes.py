"""Split, merge, transfer of a leadership, and what follows when one is applied."""

from __future__ import annotations

from ticdc_lab.simulate.machine import Changed, Decided, Send
from ticdc_lab.simulate.pipeline.keys import shown
from ticdc_lab.simulate.pipeline.kv_messages import RegionHeartbeat, TransferLeader
from ticdc_lab.simulate.pipeline.tikv.layout import PD
from ticdc_lab.simulate.pipeline.tikv.raft_messages import Campaign
from ticdc_lab.simulate.pipeline.tikv.region_data import Data
from ticdc_lab.simulate.pipeline.tikv.turn import Turn


def transfer(turn: Turn, command: TransferLeader) -> None:
    """Let another store stand for election; that it asks for votes is how this one hears of it."""
    region = _led_region_of(turn, command.key)
    subject = f"region:{region}" if region is not None else "region"
    data = turn.state.peers[region].data if region is not None else None
    if region is None or data is None:
        because = f"{turn.state.name} does not lead the region of {shown(command.key)}"
        turn.out.append(Decided(subject, None, because))
    elif command.to not in data.peers or command.to == turn.state.name:
        turn.out.append(Decided(subject, None, f"{command.to} is no follower of region {region}"))
    else:
        turn.out.append(Decided(subject, command.to, f"its leadership is to go to {command.to}"))
        turn.send(command.to, Campaign((region,), f"{turn.state.name} gave its place to it"))


def _led_region_of(turn: Turn, key: int) -> int | None:
    """Give the region that holds a key, if this store leads it and serves it."""
    for region, peer in turn.led():
        data = peer.data
        if data is not None and data.start <= key < data.end and peer.led and peer.led.applied:
            return region
    return None


def changed(turn: Turn, region: int, before: Data | None, after: Data) -> None:
    """A region came to be served here, or has another range: tell PD and those who must know."""
    peer = turn.state.peers[region]
    if before is None:
        because = peer.led.because if peer.led else ""
        turn.out.append(Changed(f"region:{region}", None, turn.state.name, f"{because} (term {peer.term})"))
    report(turn)


def report(turn: Turn) -> None:
    """Tell PD which regions are led here: those whose leadership a majority confirmed of late."""
    half_us = turn.store.settings.store_down_us // 2
    regions, terms, peers = [], [], []
    for _, peer in turn.led():
        led = peer.led
        if led is None or led.applied is None or (turn.now.at_us - led.confirmed_us > half_us and led.followers):
            continue
        regions.append(led.applied.region(turn.state.address))
        terms.append(peer.term)
        peers.append(led.applied.peers)
    turn.out.append(Send(PD, RegionHeartbeat(tuple(regions), (), tuple(terms), tuple(peers))))
