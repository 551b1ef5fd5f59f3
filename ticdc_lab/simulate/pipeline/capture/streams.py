"""What stores send: rows into matcher and sorter, resolved_ts into the frontiers."""

from __future__ import annotations

from ticdc_lab.simulate.machine import Address, Broken, Ignored
from ticdc_lab.simulate.pipeline.capture import ddl_puller, kv_client, sink
from ticdc_lab.simulate.pipeline.capture.desk import Desk
from ticdc_lab.simulate.pipeline.capture.matcher import matched
from ticdc_lab.simulate.pipeline.capture.path_state import STREAMING, Row, Stream
from ticdc_lab.simulate.pipeline.capture.puller import frontier_ts
from ticdc_lab.simulate.pipeline.capture.sorter import added
from ticdc_lab.simulate.pipeline.cdc_messages import Entries, ResolvedTs
from ticdc_lab.simulate.pipeline.keys import META, shown
from ticdc_lab.simulate.scheduler.roles import Key, in_turn


def entries(desk: Desk, sender: Address, message: Entries) -> None:
    """Take rows of a region."""
    key = desk.kv.owners.get(message.request_id)
    if key is None:
        desk.outputs.append(Ignored(message._replace(rows=()), "the request is an old one"))
        return
    puller = desk.puller(key)
    before = puller.streams[message.request_id]
    found = matched(before._replace(heard_us=desk.at_us), message.rows)
    stream = found.stream
    if found.initialized:
        stream = kv_client.scan_ended(desk, key, stream)
        if found.told_twice:
            desk.outputs.append(Ignored("commits", f"{found.told_twice} were told by the scan as committed rows too"))
    rows = _new(desk, key, before, found.rows)
    streams = puller.streams.set(message.request_id, stream)
    desk.set_puller(key, puller._replace(streams=streams, received=puller.received + len(rows)))
    _keep(desk, key, rows)
    if found.orphans:
        because = f"{found.orphans} commits came without their prewrite"
        kv_client.end_stream(desk, key, stream, because)
        kv_client.ask(desk, key)
    if found.initialized:
        kv_client.begin_scans(desk)


def _new(desk: Desk, key: Key, stream: Stream, rows: list[Row]) -> list[Row]:
    """Leave out what is before the start; below what the store promised to be complete nothing may come."""
    if not rows:
        return rows
    first = min(rows)
    if first[0] > stream.resolved_ts:
        return rows
    start_ts = 0 if key == META else desk.paths[key].start_ts
    late = [row for row in rows if stream.resolved_ts >= row[0] > start_ts]
    if late:
        because = f"{shown(late[0][3])} was committed at {late[0][0]}, after {stream.store} told {stream.resolved_ts}"
        desk.outputs.append(Broken("Resolved Is Consistent", f"region {stream.region}: {because}"))
    return [row for row in rows if row[0] > start_ts]


def _keep(desk: Desk, key: Key, rows: list[Row]) -> None:
    if key == META:
        ddl_puller.received(desk, rows)
    elif rows:
        path = desk.paths[key]
        desk.put(path._replace(sorter=added(path.sorter, rows, desk.settings.sorter_memory_rows)))


def resolved(desk: Desk, sender: Address, message: ResolvedTs) -> None:
    """Take a resolved_ts of regions; one that is being scanned has none yet."""
    owners, ts = desk.kv.owners, message.ts
    told: dict[Key, dict[int, Stream]] = {}
    for request_id, _ in message.regions:
        key = owners.get(request_id)
        if key is None:
            continue
        stream = desk.puller(key).streams[request_id]
        if stream.state == STREAMING:
            stream = stream._replace(heard_us=desk.at_us, resolved_ts=max(ts, stream.resolved_ts))
        else:
            stream = stream._replace(heard_us=desk.at_us)
        told.setdefault(key, {})[request_id] = stream
    if not told:
        desk.outputs.append(Ignored(message, "the requests are old ones"))
    for key in in_turn(told):
        puller = desk.puller(key)
        desk.set_puller(key, puller._replace(streams=puller.streams.update(told[key])))
        advance(desk, key)


def advance(desk: Desk, key: Key) -> None:
    """Bring a frontier up to its regions, and let out what is due then."""
    if key == META:
        if ddl_puller.advanced(desk):
            sink.pump_all(desk)
        return
    puller = desk.puller(key)
    resolved_ts = frontier_ts(puller)
    if resolved_ts > puller.resolved_ts:
        desk.set_puller(key, puller._replace(resolved_ts=resolved_ts))
        sink.pump(desk, key)
