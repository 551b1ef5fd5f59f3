"""The coordinator, which etcd elects: it places the maintainer on a node, moves it, and drains nodes.

(coordinator/coordinator.go, coordinator/controller.go.) It asks every node what it runs and does nothing before all
have answered. The maintainer has one place and one epoch: it is removed before it is added elsewhere, and dispatchers
follow the highest epoch. Its watermarks come with the heartbeats of its node. Of a node that is to go the maintainer
leaves first, then, once every node knows the target, the dispatchers; when nothing is left there it is stopped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from immutables import Map

from ticdc_lab.machines.machine import (
    CAPTURE,
    OTHER,
    Address,
    Asked,
    Changed,
    Decided,
    Event,
    Ignored,
    Now,
    Output,
    Reason,
    Received,
    Send,
    replace,
)
from ticdc_lab.simulate.scheduler.roles import (
    Drain,
    MergeSpans,
    MoveMaintainer,
    MoveTable,
    OwnerOutput,
    Rebalance,
    SplitTable,
    Tick,
    Watermarks,
    without,
)
from ticdc_lab.simulate.scheduler.v4 import drain
from ticdc_lab.simulate.scheduler.v4.drain import RESEND_US, DrainController
from ticdc_lab.simulate.scheduler.v4.messages import (
    AddMaintainerRequest,
    CoordinatorBootstrapRequest,
    MaintainerCommand,
    MaintainerStatus,
    NodeHeartbeat,
    RemoveMaintainerRequest,
    SetDispatcherDrainTarget,
    SetNodeLivenessResponse,
    not_answered,
)

# A move of the maintainer (coordinator/operator/operator_move.go).
#
# The origin is removed first and only then the target is asked: never two maintainers of one changefeed. If the target
# is lost before it was asked, the origin becomes the target. If it is lost afterwards, the changefeed is absent: the
# request may have arrived.

ABSENT, SCHEDULING, WORKING = "absent", "scheduling", "working"
REMOVE_ORIGIN, ORIGIN_STOPPED, ADD_TARGET = "removeOrigin", "originStopped", "addTarget"
DONE_SUCCESS, DONE_NO_POST_FINISH = "doneSuccess", "doneNoPostFinish"
STOPPED, WORKS, ORIGIN_GONE, TARGET_GONE = "stopped", "works", "origin gone", "target gone"
FALL_BACK = "fall back"
TURNS: Mapping[tuple[str, str], str] = {
    (REMOVE_ORIGIN, STOPPED): ORIGIN_STOPPED,
    (REMOVE_ORIGIN, ORIGIN_GONE): ORIGIN_STOPPED,
    (REMOVE_ORIGIN, TARGET_GONE): FALL_BACK,
    (ORIGIN_STOPPED, TARGET_GONE): FALL_BACK,
    (ADD_TARGET, WORKS): DONE_SUCCESS,
    (ADD_TARGET, TARGET_GONE): DONE_NO_POST_FINISH,
    (DONE_SUCCESS, TARGET_GONE): DONE_NO_POST_FINISH,
}
"""The next state, by the state and what a node reports or its loss; ``fall back``: the origin becomes the target."""


class MaintainerPlace(NamedTuple):
    """Where the maintainer of a changefeed is, and the epoch of the one that runs."""

    name: str
    state: str
    node: Address | None
    epoch: int = 1


@dataclass(frozen=True, slots=True)
class MaintainerMove:
    """``target`` becomes the origin where the destination is lost before it was asked.

    The maintainer has ``target_epoch`` there, which is one of the coordinator that moves it: the origin's may be of the
    coordinator before.
    """

    origin: Address
    target: Address
    origin_epoch: int
    target_epoch: int
    state: str = REMOVE_ORIGIN
    origin_removed: bool = False

    @property
    def finished(self) -> bool:
        """Moved, or given up."""
        return self.state in (DONE_SUCCESS, DONE_NO_POST_FINISH)


Moved = tuple[MaintainerMove, MaintainerPlace, list[Output]]


def begun(changefeed: MaintainerPlace, dest: Address, epoch: int) -> Moved:
    """Begin to move a maintainer from where it is; it has ``epoch`` at the destination."""
    if changefeed.node is None:
        raise ValueError(f"{changefeed.name} is on no node: it is added, not moved")
    move = MaintainerMove(changefeed.node, dest, changefeed.epoch, epoch)
    return move, *put(changefeed, SCHEDULING, changefeed.node, f"it moves to {dest}")


def check(
    move: MaintainerMove, changefeed: MaintainerPlace, sender: Address, status: MaintainerStatus
) -> MaintainerMove:
    """Take a maintainer's status: of the epoch that is meant, and of the target only with its bootstrap done."""
    what, works = "", status.state == "Working"
    if sender == move.origin and move.state == REMOVE_ORIGIN:
        what = STOPPED if not works and status.maintainer_epoch in (0, move.origin_epoch) else ""
    elif sender == move.target and status.maintainer_epoch in (0, changefeed.epoch):
        what = WORKS if works and status.bootstrap_done else ""
    return replace(move, state=TURNS.get((move.state, what), move.state))


def schedule(move: MaintainerMove, changefeed: MaintainerPlace) -> Moved:
    """Give the order of this moment: remove at the origin, or, bound to it, add at the target."""
    if move.finished:
        return move, changefeed, []
    if move.state == REMOVE_ORIGIN:
        order = RemoveMaintainerRequest(changefeed.name, move.origin_epoch)
        return move, changefeed, [Send(move.origin, order)]
    outputs: list[Output] = []
    if move.state == ORIGIN_STOPPED:
        move = replace(move, state=ADD_TARGET)
        because = f"it has stopped on {move.origin}"
        changefeed, outputs = put(changefeed._replace(epoch=move.target_epoch), SCHEDULING, move.target, because)
    return move, changefeed, [*outputs, Send(move.target, AddMaintainerRequest(changefeed.name, changefeed.epoch))]


def node_removed(move: MaintainerMove, changefeed: MaintainerPlace, node: Address) -> Moved:
    """Take that a node is gone."""
    what = TARGET_GONE if node == move.target else ORIGIN_GONE if node == move.origin else ""
    after = TURNS.get((move.state, what), move.state)
    move = replace(move, origin_removed=move.origin_removed or node == move.origin)
    if after == FALL_BACK and move.target != move.origin and not (move.state == ORIGIN_STOPPED and move.origin_removed):
        return replace(move, target=move.origin), changefeed, []
    if after not in (FALL_BACK, DONE_NO_POST_FINISH) or move.state == DONE_NO_POST_FINISH:
        return replace(move, state=after), changefeed, []
    because = f"{node} is gone" + (", and the request may have reached it" if after != FALL_BACK else "")
    return replace(move, state=DONE_NO_POST_FINISH), *put(changefeed, ABSENT, None, because)


def post_finish(move: MaintainerMove, changefeed: MaintainerPlace) -> Moved:
    """Working at the target; nothing where the move was given up."""
    if move.state != DONE_SUCCESS:
        return move, changefeed, []
    return move, *put(changefeed, WORKING, move.target, f"{move.target} reports it working, with its bootstrap done")


def put(
    changefeed: MaintainerPlace, state: str, node: Address | None, because: str
) -> tuple[MaintainerPlace, list[Output]]:
    """Give a changefeed another state and place."""
    new = changefeed._replace(state=state, node=node)
    if new == changefeed:
        return new, []
    before, after = (f"{c.state}@{c.node}" if c.node else c.state for c in (changefeed, new))
    return new, [Changed(f"changefeed:{changefeed.name}", before, after, because)]


# The coordinator

NAME = "changefeed"
PLACES = 16
"""Epochs of maintainers begin at the coordinator's own with so many binary places behind it: they always rise."""
NOWHERE = MaintainerPlace(NAME, ABSENT, None, 0)
NO_DRAIN = DrainController()
TO_COORDINATOR = (NodeHeartbeat, SetNodeLivenessResponse)
"""The messages that are for the coordinator; those for a maintainer go to its node."""


@dataclass(frozen=True, slots=True)
class V4CoordinatorState:
    """A coordinator; ``owner_rev``, its epoch, is 0 while it is not elected."""

    address: Address
    owner_rev: int = 0
    nodes: Map[Address, int] = Map()  # those that are registered, with when each was asked last
    heard: Map[Address, NodeHeartbeat] = Map()  # the last heartbeat of each that has answered this coordinator
    bootstrapped: bool = False  # whether all had answered: it may place a maintainer
    # Where the maintainer is, the move that is under way, and when the order for either was sent last.
    changefeed: MaintainerPlace = NOWHERE
    move: MaintainerMove | None = None
    sent_us: int | None = None
    # The drain: the controller's state, whom dispatchers leave, and when nodes were informed.
    control: DrainController = NO_DRAIN
    target: Address = ""
    target_epoch: int = 0
    told_us: Map[Address, int] = Map()
    since_us: int = 0  # since when there has been no maintainer that works
    said: str = ""  # the last reason why nothing is done

    @property
    def status(self) -> MaintainerStatus | None:
        """Give the maintainer's own report, None where it is not known to work."""
        node = self.changefeed.node
        known = self.heard[node].maintainer if node is not None and node in self.heard else None
        works = known is not None and known.state == "Working" and known.maintainer_epoch == self.changefeed.epoch
        return known if works else None


Stepped = tuple[V4CoordinatorState, list[Output]]


class V4Coordinator:
    """A machine; before :meth:`elected` it takes nothing."""

    def start(self, address: Address, now: Now) -> Stepped:
        """Give the state of a node that is not the coordinator's."""
        return V4CoordinatorState(address), []

    def elected(self, address: Address, owner_rev: int, now: Now) -> Stepped:
        """Begin as the coordinator: what nodes run is not known."""
        changefeed = MaintainerPlace(NAME, ABSENT, None, owner_rev << PLACES)
        return V4CoordinatorState(address, owner_rev, changefeed=changefeed, since_us=now.at_us), []

    def step(self, state: V4CoordinatorState, event: Event, now: Now) -> tuple[V4CoordinatorState, list[OwnerOutput]]:
        if isinstance(event, Asked) and isinstance(event.command, Tick):
            return _ticked(state, event.command, now)
        found: Stepped = (state, [Ignored(event, "a coordinator knows nothing of it")])
        if isinstance(event, Asked):
            found = _wished(state, event.command, now.at_us)
        elif isinstance(event, Received) and isinstance(event.message, NodeHeartbeat):
            found = _heard(state, event.sender, event.message, now.at_us)
        elif isinstance(event, Received) and isinstance(event.message, SetNodeLivenessResponse):
            control, outputs = drain.response_observed(state.control, event.sender, event.message, now.at_us)
            found = replace(state, control=control), outputs
        return found[0], [*found[1]]


# What users want


def _wished(state: V4CoordinatorState, command: Any, at_us: int) -> Stepped:
    if isinstance(command, Drain):
        if command.capture not in state.nodes:
            return state, [Decided("drain", None, f"{command.capture} is not registered")]
        control, outputs = drain.drain_requested(state.control, command.capture, at_us)
        return replace(state, control=control), [Decided("drain", command.capture, "a user asked for it"), *outputs]
    if isinstance(command, MoveMaintainer):
        return _moved(state, command.to, "a user asked for it", at_us)
    if isinstance(command, (MoveTable, Rebalance, SplitTable, MergeSpans)):
        node = state.changefeed.node
        if state.status is None or node is None:
            return state, [Ignored(command, "there is no maintainer that works")]
        return state, [Send(node, MaintainerCommand(state.changefeed.epoch, command))]
    return state, [Ignored(command, "a coordinator knows no such command")]


def _moved(state: V4CoordinatorState, to: Address, because: str, at_us: int) -> Stepped:
    """Begin to move the maintainer, unless it cannot be."""
    why_not = drain.why_not_dest(state.control, to, at_us)
    if state.changefeed.state != WORKING or state.move is not None:
        why_not = "it is being placed"
    elif to not in state.heard:
        why_not = f"{to} is not known"
    elif to == state.changefeed.node:
        why_not = "it is there already"
    if why_not:
        return _said(state, f"maintainer to {to}: {why_not}", Decided("maintainer", None, why_not))
    move, changefeed, outputs = begun(state.changefeed, to, _next_epoch(state))
    decided = Decided("maintainer", to, because)
    state = replace(state, move=move, changefeed=changefeed, since_us=at_us, sent_us=None, said="")
    return state, [decided, *outputs]


def _next_epoch(state: V4CoordinatorState) -> int:
    """Give the epoch of the next maintainer: nodes take none of an older coordinator, as one taken over may be."""
    return max(state.changefeed.epoch, state.owner_rev << PLACES) + 1


# Messages of nodes


def _heard(state: V4CoordinatorState, sender: Address, message: NodeHeartbeat, at_us: int) -> Stepped:
    if sender not in state.nodes or message.coordinator_epoch != state.owner_rev:
        return state, [Ignored(message, f"{sender} is not registered, or follows another coordinator")]
    before = state.heard.get(sender)
    if before is not None and message.node_epoch < before.node_epoch:
        return state, [Ignored(message, f"{sender} is in life {before.node_epoch}")]
    control, outputs = drain.heartbeat_observed(state.control, sender, message, at_us)
    state = replace(state, control=control, heard=state.heard.set(sender, message))
    if not state.bootstrapped:
        return state, outputs
    status, one = message.maintainer or MaintainerStatus("Stopped"), state.changefeed
    if state.move is not None:
        move = check(state.move, one, sender, status)
        return replace(state, move=move, sent_us=state.sent_us if move == state.move else None), outputs
    works = status.state == "Working"
    if works and status.maintainer_epoch < one.epoch:
        return state, [*outputs, Send(sender, RemoveMaintainerRequest(one.name, status.maintainer_epoch))]
    if sender != one.node:
        return state, outputs
    if works and status.bootstrap_done and one.state == SCHEDULING:
        changefeed, told = put(one, WORKING, sender, f"{sender} reports it working")
    elif not works and (one.state == WORKING or one.epoch >> PLACES < state.owner_rev):
        changefeed, told = put(one, ABSENT, None, f"{sender} does not run it any more")
        state = replace(state, since_us=at_us)
    else:
        return state, outputs
    return replace(state, changefeed=changefeed, sent_us=None), [*outputs, *told]


# A tick


def _ticked(state: V4CoordinatorState, tick: Tick, now: Now) -> tuple[V4CoordinatorState, list[OwnerOutput]]:
    state, outputs = _members(state, tick, now.at_us)
    if not state.bootstrapped and state.nodes and len(state.heard) == len(state.nodes):
        state, more = _bootstrapped(state, now.at_us)
        outputs += more
    if state.bootstrapped:
        for step in (_placed, _proceeded, _drained):
            state, more = step(state, now.at_us)
            outputs += more
    return state, [*outputs, _watermarks(state)]


def _members(state: V4CoordinatorState, tick: Tick, at_us: int) -> Stepped:
    outputs: list[Output] = []
    for gone in sorted(set(state.nodes) - tick.captures):
        heard, control = without(state.heard, gone), drain.node_removed(state.control, gone)
        state = replace(state, nodes=state.nodes.delete(gone), heard=heard, control=control)
        if state.target == gone:
            control = drain.gate_cleared(state.control, gone, state.target_epoch)
            state = replace(state, control=control, target="", target_epoch=state.target_epoch + 1, told_us=Map())
        if state.move is not None:
            move, changefeed, more = node_removed(state.move, state.changefeed, gone)
            state = replace(state, move=move, changefeed=changefeed, sent_us=None)
            outputs += more
        elif state.changefeed.node == gone:
            changefeed, more = put(state.changefeed, ABSENT, None, f"{gone} is gone")
            state = replace(state, changefeed=changefeed, since_us=at_us, sent_us=None)
            outputs += more
    for node in sorted(tick.captures):
        asked_us = state.nodes.get(node)
        if asked_us is None or (node not in state.heard and at_us - asked_us >= RESEND_US):
            state = replace(state, nodes=state.nodes.set(node, at_us))
            outputs.append(Send(node, CoordinatorBootstrapRequest(state.owner_rev)))
    return state, outputs


def _bootstrapped(state: V4CoordinatorState, at_us: int) -> Stepped:
    """Take over the maintainer with the highest epoch; any other gets the order to end."""
    found = [(h.maintainer.maintainer_epoch, node) for node, h in sorted(state.heard.items())
             if h.maintainer is not None and h.maintainer.state == "Working"]  # fmt: skip
    found.sort(reverse=True)
    outputs: list[Output] = [Send(node, RemoveMaintainerRequest(NAME, epoch)) for epoch, node in found[1:]]
    told = Changed("coordinator", None, "ready", f"{len(state.heard)} nodes have answered")
    changefeed = state.changefeed
    if found:
        epoch, node = found[0]
        status = state.heard[node].maintainer
        works = WORKING if status is not None and status.bootstrap_done else SCHEDULING
        changefeed, more = put(changefeed._replace(epoch=epoch), works, node, f"{node} runs it")
        outputs += more
    targets = [(h.dispatcher_drain_target_epoch, h.dispatcher_drain_target_node_id) for h in state.heard.values()]
    epoch = max([state.owner_rev << PLACES, *(e + 1 for e, _ in targets)])
    return replace(state, bootstrapped=True, changefeed=changefeed, target_epoch=epoch), [told, *outputs]


def _placed(state: V4CoordinatorState, at_us: int) -> Stepped:
    """Add the maintainer where there is none, again until it works."""
    one = state.changefeed
    if state.move is not None or one.state == WORKING:
        return state, []
    if one.node is not None:
        if state.sent_us is not None and at_us - state.sent_us < RESEND_US:
            return state, []
        return replace(state, sent_us=at_us), [Send(one.node, AddMaintainerRequest(one.name, one.epoch))]
    why_not = {n: drain.why_not_dest(state.control, n, at_us) for n in sorted(state.heard)}
    rejected = tuple((n, because) for n, because in why_not.items() if because)
    nodes = [n for n, because in why_not.items() if not because]
    if not nodes:
        decided = Decided("maintainer", None, "no node can take it", rejected)
        return _said(state, f"no node: {rejected}", decided)
    node = state.address if state.address in nodes else nodes[0]
    epoch = _next_epoch(state)
    changefeed, outputs = put(one._replace(epoch=epoch), SCHEDULING, node, f"it is added on {node}")
    decided = Decided("maintainer", node, "there is none, and all nodes have equally many", rejected)
    state = replace(state, changefeed=changefeed, sent_us=at_us, said="")
    return state, [decided, *outputs, Send(node, AddMaintainerRequest(one.name, epoch))]


def _proceeded(state: V4CoordinatorState, at_us: int) -> Stepped:
    """Send the order of a move, again until it is answered, and end a move that is done."""
    if state.move is None:
        return state, []
    if state.move.finished:
        _, changefeed, outputs = post_finish(state.move, state.changefeed)
        return replace(state, move=None, changefeed=changefeed, sent_us=None), outputs
    if state.sent_us is not None and at_us - state.sent_us < RESEND_US:
        return state, []
    move, changefeed, outputs = schedule(state.move, state.changefeed)
    return replace(state, move=move, changefeed=changefeed, sent_us=at_us), outputs


# The drain of a node


def _drained(state: V4CoordinatorState, at_us: int) -> Stepped:
    """Lead nodes that are to go from ALIVE over DRAINING to STOPPING."""
    control, outputs = drain.liveness_advanced(
        state.control, lambda node: node in state.heard, lambda node: _is_empty(state, node), at_us
    )
    state = replace(state, control=control)
    leaving = [n for n in sorted(state.heard) if drain.state_of(control, n, at_us) != drain.ALIVE]
    if leaving and not state.target:
        epoch = state.target_epoch + 1
        control = drain.gate_started(state.control, leaving[0], epoch)
        state = replace(state, control=control, target=leaving[0], target_epoch=epoch, told_us=Map())
    if state.changefeed.node in leaving and state.changefeed.state == WORKING and state.move is None:
        others = [n for n in sorted(state.heard) if drain.schedulable(state.control, n, at_us)]
        to = state.address if state.address in others else next(iter(others), "")
        if to:
            state, more = _moved(state, to, f"{state.changefeed.node} is being drained", at_us)
            outputs += more
    for node in sorted(state.heard):
        known = state.heard[node]
        knows = (known.dispatcher_drain_target_node_id, known.dispatcher_drain_target_epoch)
        due = at_us - state.told_us.get(node, at_us - RESEND_US) >= RESEND_US
        if (state.target or knows[0]) and knows != (state.target, state.target_epoch) and due:
            state = replace(state, told_us=state.told_us.set(node, at_us))
            outputs.append(Send(node, SetDispatcherDrainTarget(state.target, state.target_epoch)))
    return state, outputs


def _is_empty(state: V4CoordinatorState, node: Address) -> bool:
    """Whether neither the maintainer nor a dispatcher is left on a node that is drained."""
    status = state.status
    here = state.changefeed.node == node or (state.move is not None and node in (state.move.origin, state.move.target))
    return node == state.target and not here and status is not None and status.draining == 0


def _watermarks(state: V4CoordinatorState) -> Watermarks:
    if not state.bootstrapped:
        late = [n for n in sorted(state.nodes) if n not in state.heard]
        return Watermarks(None, None, not_answered("coordinator", late, state.since_us))
    status = state.status
    if status is None:
        node = state.changefeed.node
        words = f"the maintainer is on {node or 'no node'} and does not work"
        return Watermarks(None, None, Reason(CAPTURE if node else OTHER, node or "", words, state.since_us))
    return Watermarks(status.checkpoint_ts, status.resolved_ts, status.because)


def _said(state: V4CoordinatorState, said: str, decided: Decided) -> Stepped:
    """Report once why nothing is done."""
    return (state, []) if said == state.said else (replace(state, said=said), [decided])
