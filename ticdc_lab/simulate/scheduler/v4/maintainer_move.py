"""The coordinator moves a maintainer from one node to another (coordinator/operator/operator_move.go).

The origin is removed first and only then the target is asked: never two maintainers of one changefeed. Is the target
lost before it was asked, the origin becomes the target; is it lost afterwards, the changefeed is absent, because the
request may have arrived.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ticdc_lab.machines.machine import Address, Changed, Output, Send, replace
from ticdc_lab.simulate.scheduler.v4.messages import AddMaintainerRequest, MaintainerStatus, RemoveMaintainerRequest

ABSENT, SCHEDULING, WORKING = "absent", "scheduling", "working"
REMOVE_ORIGIN, ORIGIN_STOPPED, ADD_TARGET = "removeOrigin", "originStopped", "addTarget"
DONE_SUCCESS, DONE_NO_POST_FINISH = "doneSuccess", "doneNoPostFinish"


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


Stepped = tuple[MaintainerMove, MaintainerPlace, list[Output]]


def begun(changefeed: MaintainerPlace, dest: Address, epoch: int) -> Stepped:
    """Begin to move a maintainer from where it is; it has ``epoch`` at the destination."""
    if changefeed.node is None:
        raise ValueError(f"{changefeed.name} is on no node: it is added, not moved")
    move = MaintainerMove(changefeed.node, dest, changefeed.epoch, epoch)
    return move, *put(changefeed, SCHEDULING, changefeed.node, f"it moves to {dest}")


def check(
    move: MaintainerMove, changefeed: MaintainerPlace, sender: Address, status: MaintainerStatus
) -> MaintainerMove:
    """Take a maintainer's status: of the epoch that is meant, and of the target only with its bootstrap done."""
    if sender == move.origin and move.state == REMOVE_ORIGIN:
        stopped = status.state != "Working" and _matches(status.maintainer_epoch, move.origin_epoch)
        return replace(move, state=ORIGIN_STOPPED) if stopped else move
    if sender != move.target or move.state != ADD_TARGET or not _matches(status.maintainer_epoch, changefeed.epoch):
        return move
    works = status.state == "Working" and status.bootstrap_done
    return replace(move, state=DONE_SUCCESS) if works else move


def schedule(move: MaintainerMove, changefeed: MaintainerPlace) -> Stepped:
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


def node_removed(move: MaintainerMove, changefeed: MaintainerPlace, node: Address) -> Stepped:
    """Take that a node is gone."""
    if move.state == DONE_NO_POST_FINISH:
        return move, changefeed, []
    move = replace(move, origin_removed=move.origin_removed or node == move.origin)
    if node == move.target:
        asked = move.state not in (REMOVE_ORIGIN, ORIGIN_STOPPED)
        nowhere = move.target == move.origin or (move.state == ORIGIN_STOPPED and move.origin_removed)
        if not asked and not nowhere:
            return replace(move, target=move.origin), changefeed, []
        because = f"{node} is gone" + (", and the request may have reached it" if asked else "")
        move = replace(move, state=DONE_NO_POST_FINISH)
        return move, *put(changefeed, ABSENT, None, because)
    if node == move.origin and move.state == REMOVE_ORIGIN:
        return replace(move, state=ORIGIN_STOPPED), changefeed, []
    return move, changefeed, []


def post_finish(move: MaintainerMove, changefeed: MaintainerPlace) -> Stepped:
    """Working at the target; nothing where the move was given up."""
    if move.state != DONE_SUCCESS:
        return move, changefeed, []
    return move, *put(changefeed, WORKING, move.target, f"{move.target} reports it working, with its bootstrap done")


def _matches(epoch: int, expected: int) -> bool:
    return epoch in (0, expected)


def put(
    changefeed: MaintainerPlace, state: str, node: Address | None, because: str
) -> tuple[MaintainerPlace, list[Output]]:
    """Give a changefeed another state and place."""
    new = changefeed._replace(state=state, node=node)
    if new == changefeed:
        return new, []
    before, after = (f"{c.state}@{c.node}" if c.node else c.state for c in (changefeed, new))
    return new, [Changed(f"changefeed:{changefeed.name}", before, after, because)]
