"""DDLs that all dispatchers reach together: the maintainer's barrier, and what the dispatchers of a node do.

1. A dispatcher stops at the DDL and reports it, again until it is acknowledged; its checkpoint is one below it, so a
dispatcher created again meets it again. 2. When all are there, the DDL dispatcher writes it (the order is sent again).
3. When it has written it, the others are ordered to pass (again). 4. When all have passed, the event is forgotten.

Here each DDL concerns every table, and tables come and go with the maintainer's tick. Events of some tables or of one
schema, those that change tables by themselves, and syncpoints are not modelled. (maintainer/barrier.go,
barrier_event.go; downstreamadapter/dispatcher, ``dealWithBlockEvent``.)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from immutables import Map

from ticdc_lab.machines.machine import Address, Changed, Ignored, Output, Send, replace
from ticdc_lab.simulate.scheduler import executor as pipelines
from ticdc_lab.simulate.scheduler.etcd_messages import ETCD, ExecuteDdl
from ticdc_lab.simulate.scheduler.executor import MAX_TS, Executor, checkpoint_of
from ticdc_lab.simulate.scheduler.roles import Key, without
from ticdc_lab.simulate.scheduler.v4 import spans
from ticdc_lab.simulate.scheduler.v4.messages import (
    ACK,
    DDL_DISPATCHER,
    BlockStatusRequest,
    DispatcherAction,
    DispatcherStatus,
    HeartBeatResponse,
    InfluencedDispatchers,
    State,
    TableSpanBlockStatus,
)
from ticdc_lab.simulate.scheduler.v4.operators import Control
from ticdc_lab.simulate.scheduler.v4.spans import REPLICATING, Spans, position

RESEND_US = 1_000_000


@dataclass(frozen=True, slots=True)
class BarrierEvent:
    """A DDL: who has reported it, and whether it is written."""

    block_ts: int
    # Before ``selected`` the dispatchers that are at it, afterwards those that wrote or passed it.
    reported: Map[Key, None] = Map()
    selected: bool = False  # all were at it: the DDL dispatcher writes it
    writer: Key | None = None  # None where it was found to be downstream
    writer_advanced: bool = False  # it is downstream: from now on the others pass it
    resent_us: int | None = None  # when its action was sent last; None to send at once

    def __str__(self) -> str:
        return f"ddl:{self.block_ts}"


@dataclass(frozen=True, slots=True)
class Barrier:
    """All DDLs, by ts; ``home`` is the node of the table trigger event dispatcher."""

    home: Address = ""
    events: Map[int, BarrierEvent] = Map()


NO_BARRIER = Barrier()
Stepped: TypeAlias = tuple[Barrier, Control, list[Output]]


def missing(event: BarrierEvent, state: Spans) -> bool:
    """Whether a dispatcher has not reported."""
    return any(
        key not in event.reported
        or not (key == DDL_DISPATCHER or event.writer_advanced or state.replicas[key].state == REPLICATING)
        for key in (DDL_DISPATCHER, *state.replicas)
    )


def beyond(event: BarrierEvent, state: Spans) -> list[Key]:
    """Give the dispatchers known to have left the event behind, as after a maintainer or node was lost."""
    found: list[Key] = []
    for key in sorted(state.replicas, key=position):
        replica = state.replicas[key]
        reached = state.reached.get(replica.node or "", 0) if replica.state == REPLICATING else 0
        if max(replica.checkpoint_ts, reached if reached < MAX_TS else 0) > event.block_ts:
            found.append(key)
    return found


def action(event: BarrierEvent, nodes: frozenset[Address], home: Address) -> list[Output]:
    """Give what has to be sent now: write it, at ``home``, or pass it, everywhere."""
    if event.writer_advanced:
        everyone = InfluencedDispatchers("All", (), event.writer)
        passes = DispatcherStatus(everyone, action=DispatcherAction("Pass", event.block_ts))
        return [Send(node, HeartBeatResponse((passes,))) for node in sorted(nodes)]
    writer = InfluencedDispatchers("Normal", (DDL_DISPATCHER,))
    return [
        Send(home, HeartBeatResponse((DispatcherStatus(writer, action=DispatcherAction("Write", event.block_ts)),)))
    ]


def handle_status(
    barrier: Barrier, control: Control, sender: Address, request: BlockStatusRequest, at_us: int
) -> Stepped:
    """Take block statuses of a node, in their order; what was understood is acknowledged."""
    outputs: list[Output] = []
    acked: dict[int, list[Key]] = {}
    for status in request.block_statuses:
        replica = control.spans.replicas.get(status.id)
        if status.id != DDL_DISPATCHER and (replica is None or replica.state != REPLICATING):
            outputs.append(Ignored(status, f"{status.id} does not replicate"))
            continue
        block_ts = status.state.block_ts
        control = control._replace(spans=spans.checkpointed(control.spans, status.id, block_ts - 1))
        event = barrier.events.get(block_ts)
        if status.state.stage != "DONE":
            barrier, more = _waits(barrier, control, event, status, at_us)
        elif event is None:
            outputs.append(Ignored(status, "the event is not known (any more)"))
            continue
        else:
            barrier, more = _done(barrier, control, event, status.id)
        outputs += more
        acked.setdefault(block_ts, []).append(status.id)
    if acked:
        known = [
            DispatcherStatus(InfluencedDispatchers("Normal", tuple(acked[ts])), ack=ACK(ts)) for ts in sorted(acked)
        ]
        outputs.insert(0, Send(sender, HeartBeatResponse(tuple(known))))
    return barrier, control, outputs


def resent(barrier: Barrier, control: Control, at_us: int) -> Stepped:
    """Send the actions of all events once more that were sent a second ago, and forget what is done."""
    outputs: list[Output] = []
    for block_ts in sorted(barrier.events):
        event = barrier.events[block_ts]
        if not event.selected:  # those that wait were acknowledged, and are silent
            event, outputs = _passed(event, control, outputs)
        if not event.selected or (event.resent_us is not None and at_us - event.resent_us < RESEND_US):
            continue
        event = replace(event, resent_us=at_us)
        outputs += action(event, control.nodes, barrier.home)
        barrier, more = _kept(barrier, control, event)
        outputs += more
    return barrier, control, outputs


def _waits(
    barrier: Barrier, control: Control, event: BarrierEvent | None, status: TableSpanBlockStatus, at_us: int
) -> tuple[Barrier, list[Output]]:
    """A dispatcher is at a DDL; when all do, one writes it."""
    outputs: list[Output] = []
    if event is None:
        event = BarrierEvent(status.state.block_ts)
        outputs.append(Changed(str(event), None, "waiting", f"table {status.id} waits at it"))
    if not event.selected:
        event, outputs = _passed(replace(event, reported=event.reported.set(status.id, None)), control, outputs)
        if not event.selected and not missing(event, control.spans):
            event = replace(event, selected=True, writer=DDL_DISPATCHER, reported=Map(), resent_us=at_us)
            because = f"all wait at it, table {DDL_DISPATCHER} writes it"
            outputs.append(Changed(str(event), "waiting", "writing", because))
            outputs += action(event, control.nodes, barrier.home)
    barrier, more = _kept(barrier, control, event)
    return barrier, outputs + more


def _passed(event: BarrierEvent, control: Control, outputs: list[Output]) -> tuple[BarrierEvent, list[Output]]:
    """See whether a dispatcher has left an event behind at which others wait."""
    passed = beyond(event, control.spans)
    if not passed:
        return event, outputs
    because = f"table {passed[0]} has left it behind: it is downstream"
    event = replace(event, selected=True, writer_advanced=True, reported=Map(dict.fromkeys(passed)))
    return event, [*outputs, Changed(str(event), "waiting", "passing", because)]


def _done(barrier: Barrier, control: Control, event: BarrierEvent, reporter: Key) -> tuple[Barrier, list[Output]]:
    outputs: list[Output] = []
    if not event.writer_advanced:
        if reporter != event.writer:
            return barrier, [Ignored(reporter, f"table {event.writer} has not written {event}")]
        event = replace(event, writer_advanced=True, resent_us=None)
        outputs.append(Changed(str(event), "writing", "passing", f"table {reporter} has written it"))
    barrier, more = _kept(barrier, control, replace(event, reported=event.reported.set(reporter, None)))
    return barrier, outputs + more


def _kept(barrier: Barrier, control: Control, event: BarrierEvent) -> tuple[Barrier, list[Output]]:
    """Keep an event, unless all have passed it."""
    if not event.writer_advanced or missing(event, control.spans):
        return replace(barrier, events=barrier.events.set(event.block_ts, event)), []
    left = without(barrier.events, event.block_ts)
    return replace(barrier, events=left), [Changed(str(event), "passing", None, "all have passed it")]


def rebuilt(barrier: Barrier, state: Spans, statuses: Iterable[TableSpanBlockStatus]) -> tuple[Barrier, list[Output]]:
    """Take up the DDLs at which dispatchers stand when a maintainer begins (Barrier.handleBootstrapResponse).

    One that a dispatcher has left behind is downstream. One at which all wait is left alone: one that was not
    acknowledged reports it again.
    """
    at: dict[int, list[Key]] = {}
    for status in statuses:
        at.setdefault(status.state.block_ts, []).append(status.id)
    outputs: list[Output] = []
    for block_ts in sorted(at):
        event = BarrierEvent(block_ts, reported=Map(dict.fromkeys(at[block_ts])))
        passed = beyond(event, state)
        if passed:
            event = replace(event, selected=True, writer_advanced=True, reported=Map(dict.fromkeys(passed)))
        phase = "passing" if passed else "waiting"
        outputs.append(Changed(str(event), None, phase, "dispatchers wait at it"))
        barrier = replace(barrier, events=barrier.events.set(block_ts, event))
    return barrier, outputs


# The same DDL as the dispatchers of a node see it.
#
# All of them stop one below it and report to the maintainer, until that is acknowledged; on the maintainer's node the
# DDL dispatcher stops there too. Ordered to write, it has the DDL executed; ordered to pass, all resume and report it.
# Where an order or an answer is lost the maintainer's next one is answered likewise.


class Block(NamedTuple):
    """What a node knows of DDLs."""

    block_ts: int | None = None  # the one at which its dispatchers are, None without one
    executed: bool = False  # whether that is downstream, by etcd
    passed_ts: int = 0  # the last that they have passed
    writes: bool = False  # whether the DDL dispatcher here was ordered to write
    acked: frozenset[Key] = frozenset()  # dispatchers whose report the maintainer has
    # Those that were reported to it, and when last.
    reported: frozenset[Key] = frozenset()
    reported_us: int = -RESEND_US

    def limit_ts(self, limit_ts: int) -> int:
        """Give up to where dispatchers may write: below a DDL at which they stand, and beyond one that they passed."""
        if self.block_ts is not None:
            return min(limit_ts, self.block_ts - 1)
        return max(limit_ts, self.passed_ts + 1) if self.passed_ts else limit_ts


Blocked: TypeAlias = tuple[Block, list[Output]]


def told(
    block: Block, barrier_ts: int | None, executed_ts: int, executor: Executor, home_ts: int | None = None
) -> Block:
    """Take the DDL that etcd has now: a new one, or none any more because it was executed.

    A dispatcher that begins below one that is executed meets it again; so does the DDL dispatcher, which begins where
    the changefeed's checkpoint is (``home_ts``, None where it is not here), or the others would wait for it.
    """
    if block.passed_ts < executed_ts and (block.block_ts is None or executed_ts < block.block_ts):
        below = home_ts is not None and home_ts < executed_ts
        if below or any(p.start_ts < executed_ts for p in executor.pipelines.values()):
            return Block(executed_ts, executed=True, passed_ts=block.passed_ts)
    if block.block_ts is not None:
        return block._replace(executed=block.executed or barrier_ts != block.block_ts)
    if barrier_ts is None or barrier_ts <= block.passed_ts:
        return block
    return Block(barrier_ts, passed_ts=block.passed_ts)


def forgotten(block: Block) -> Block:
    """Report everything again: another maintainer has begun."""
    return block._replace(writes=False, acked=frozenset(), reported=frozenset())


def replicating(executor: Executor, is_home: bool) -> list[Key]:
    """Give the dispatchers of a node; where the maintainer is, its own among them."""
    there = (key for key in executor.pipelines if pipelines.state_of(executor, key) == pipelines.REPLICATING)
    return [*([DDL_DISPATCHER] if is_home else []), *sorted(there, key=position)]


def standing(block: Block, executor: Executor, is_home: bool, at_us: int) -> list[Key]:
    """Give the ones that are at the DDL."""
    if block.block_ts is None:
        return []
    block_ts = block.block_ts
    found = replicating(executor, is_home)
    return [k for k in found if k == DDL_DISPATCHER or checkpoint_of(executor, k, at_us) >= block_ts - 1]


def reports(block: Block, maintainer: Address | None, keys: Iterable[Key], at_us: int) -> Blocked:
    """Report those that have come to it, and once a second all that were not acknowledged."""
    unknown = [key for key in keys if key not in block.acked]
    if at_us - block.reported_us < RESEND_US:
        unknown = [key for key in unknown if key not in block.reported]
    if not unknown or maintainer is None:
        return block, []
    after = block._replace(reported=block.reported | set(unknown), reported_us=at_us)
    return after, [_said(block, maintainer, unknown, "WAITING")]


def states_of(block: Block, keys: Iterable[Key]) -> tuple[TableSpanBlockStatus, ...]:
    """Give what a maintainer that begins has to know: who is at a DDL, and whether it is being written."""
    return tuple(_status(block, key, "WAITING") for key in keys if key != DDL_DISPATCHER)


def answered(block: Block, sender: Address, response: HeartBeatResponse, keys: list[Key], at_us: int) -> Blocked:
    """Take acknowledgements, and orders to write or to pass."""
    outputs: list[Output] = []
    for status in response.dispatcher_statuses:
        named = status.influenced_dispatchers
        if status.ack is not None and status.ack.commit_ts == block.block_ts:
            block = block._replace(acked=block.acked | set(named.dispatcher_ids))
        order = status.action
        if order is None:
            continue
        if order.action == "Write" and order.commit_ts == block.block_ts:
            block = block._replace(writes=True)
            executes = Send(ETCD, ExecuteDdl(order.commit_ts))
            outputs.append(_said(block, sender, [DDL_DISPATCHER], "DONE") if block.executed else executes)
        elif order.action == "Pass" and order.commit_ts <= max(block.block_ts or 0, block.passed_ts):
            others = [key for key in keys if key != named.exclude_dispatcher_id]
            if order.commit_ts == block.block_ts:
                outputs.append(Changed("block-event", block.block_ts, None, "it is written: all pass"))
                block = Block(passed_ts=order.commit_ts)
            if others:
                done = block._replace(block_ts=order.commit_ts)
                outputs.append(_said(done, sender, others, "DONE"))
        else:
            outputs.append(Ignored(response, f"the DDL of {order.commit_ts} is not the one at which it stands"))
    return block, outputs


def written(block: Block, maintainer: Address | None) -> Blocked:
    """Report that the DDL is executed, once it is."""
    if not (block.writes and block.executed) or maintainer is None:
        return block, []
    return block._replace(writes=False), [_said(block, maintainer, [DDL_DISPATCHER], "DONE")]


def _said(block: Block, to: Address, keys: Iterable[Key], stage: Literal["WAITING", "DONE"]) -> Send:
    return Send(to, BlockStatusRequest(tuple(_status(block, key, stage) for key in keys)))


def _status(block: Block, key: Key, stage: Literal["WAITING", "DONE"]) -> TableSpanBlockStatus:
    return TableSpanBlockStatus(key, State(block.block_ts or 0, stage))
