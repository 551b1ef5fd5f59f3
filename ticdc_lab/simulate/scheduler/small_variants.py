"""The two-phase scheduler (v3) and the maintainer (v4) in a small world, for the explorer: every order of events.

Owner's and processors' machines are those that run in the kernel, without a change. Links keep their order, as the
streams of both do; so the numbers of messages, which represent that order, do not count for a state. Heartbeats would
never end: a periodic call waits while messages of the node, or for it, are on their way (``Bounds.on_way``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

from ticdc_lab.errors import ContractError
from ticdc_lab.machines.machine import Asked, Now, Send
from ticdc_lab.simulate.explore import WorldStep
from ticdc_lab.simulate.scheduler import v4
from ticdc_lab.simulate.scheduler.capture import Variant
from ticdc_lab.simulate.scheduler.executor import MAX_TS
from ticdc_lab.simulate.scheduler.monitor import EMPTY, ONE
from ticdc_lab.simulate.scheduler.roles import Drain, MoveMaintainer, Poll, Tick, Watermarks
from ticdc_lab.simulate.scheduler.small import AT_ONCE, Remembered, Small
from ticdc_lab.simulate.scheduler.v3 import TO_OWNER as TO_COORDINATOR
from ticdc_lab.simulate.scheduler.v3 import V3Agent, V3Coordinator
from ticdc_lab.simulate.scheduler.v3 import V3Settings as TwoPhases
from ticdc_lab.simulate.scheduler.v4 import TO_OWNER as TO_MAINTAINER
from ticdc_lab.simulate.scheduler.v4 import Dispatchers, Maintainer, NodeManager
from ticdc_lab.simulate.scheduler.v4 import V4Settings as MaintainerSettings
from ticdc_lab.simulate.scheduler.v4.drain import STOPPING
from ticdc_lab.simulate.scheduler.world import Action, Bounds, SmallNode, SmallWorld, Structures, with_node

NEVER_US = 1 << 60
_WORDS = {
    ("V3CoordinatorState", "stuck"), ("Schedulers", "said"), ("MaintainerState", "said"),
    ("MaintainerState", "stuck_us"), ("RunningOperator", "since_us"), ("Replica", "since_us"),
    ("V4CoordinatorState", "said"), ("V4CoordinatorState", "since_us"), ("Watermarks", "because"),
    ("MaintainerStatus", "because"), ("SpanOperator", "because"),
}  # fmt: skip
_COUNTERS = {
    ("Header", "seq"), ("V3CoordinatorState", "seq"), ("Captures", "ticks"), ("V3CaptureStatus", "seq"),
    ("V3CaptureStatus", "newer"), ("V3AgentState", "seq"), ("V3AgentState", "taken"), ("Stamp", "seq"),
    ("MaintainerState", "seq"), ("DispatchersState", "seq"), ("DispatchersState", "taken"), ("KnownNode", "seq"),
    ("HeartBeatRequest", "seq"), ("MaintainerBootstrapResponse", "seq"),
}  # fmt: skip
UNCOUNTED = frozenset(_WORDS | _COUNTERS)
"""What does not count for a state: words, and numbers that only show in which order messages of one link were sent."""


def two_phases() -> Variant:
    """Give v3 as a small world has it: a heartbeat with each tick, the balance looked at once."""
    own = TwoPhases(heartbeat_ticks=1, collect_stats_ticks=NEVER_US, check_balance_us=NEVER_US, pace=AT_ONCE)
    return Variant("v3", V3Coordinator(own), V3Agent(own), TO_COORDINATOR)


def maintainer(*, lossy: bool = False) -> Variant:
    """Give v4 as a small world has it: orders are sent again with each tick where messages are lost, else never."""
    own = _at_once(lossy)
    return Variant("v4", Maintainer(own), Dispatchers(own), TO_MAINTAINER)


def _at_once(lossy: bool) -> MaintainerSettings:
    return MaintainerSettings(
        resend_us=0 if lossy else NEVER_US, balance_interval_us=NEVER_US, balance_cooldown_us=NEVER_US, pace=AT_ONCE
    )


class SmallVariant(Small):
    """The model (:class:`ticdc_lab.simulate.explore.SmallModel`) of v3 or v4.

    ``bounds``: what may happen; ``at_once``, ``doubled`` and ``topics`` are of v2 alone and refused. ``variant``:
    :func:`two_phases` or :func:`maintainer`.
    """

    def __init__(self, bounds: Bounds, variant: Variant) -> None:
        for name in ("at_once", "doubled", "topics"):
            if getattr(bounds, name):
                raise ContractError(
                    f"{variant.name} has no bound {name}",
                    hint="Set `variant: v2`: it belongs to the design's protocol.",
                )
        super().__init__(bounds)
        self._variant, self._reports = variant, variant.to_owner
        self.owner = Remembered(variant.owner)
        self.agent = Remembered(variant.processor)
        self._structures = Structures(UNCOUNTED)
        self._table_orders = (self.tables,)

    def _is_for_owner(self, message: Any) -> bool:
        return isinstance(message, self._variant.to_owner)

    def _pruned(self, world: SmallWorld, name: str, before: Any, agent: Any) -> SmallWorld:
        return world

    def _ticked(self, world: SmallWorld, name: str, node: SmallNode) -> Iterator[WorldStep[SmallWorld]]:
        ticks = self._variant.ticks  # a node's tick is its maintainer's and then its coordinator's, as in a capture
        here = node.owner is not None or (ticks and node.agent is not None and node.agent.maintainer is not None)
        if node.sees is None or not here or self._is_busy(world, name, to_it=True):
            return
        tick, seen = Asked(Tick(node.sees[0], self._wanted, world.checkpoint_ts)), set()
        for prefer in self._orders:
            now = Now(world.at_us, prefer=prefer)
            agent, outputs = self.agent.step(node.agent, tick, now) if ticks else (node.agent, [])
            owner, told = self.owner.step(node.owner, tick, now) if node.owner is not None else (None, [])
            sends = tuple(o for o in (*outputs, *told) if isinstance(o, (Send, Watermarks)))
            number = self._structures.number((agent, owner, sends), self.names)
            if number not in seen:
                seen.add(number)
                action = Action("tick", name, prefer=prefer if len(seen) > 1 else ())
                after = node._replace(agent=agent, owner=owner)
                yield self._carried_out(with_node(world, name, after), action, name, [*outputs, *told])

    def _polled(self, world: SmallWorld, name: str, node: SmallNode) -> Iterator[WorldStep[SmallWorld]]:
        if self._is_busy(world, name, to_it=False):
            return
        agent, outputs = self.agent.step(node.agent, Asked(Poll(MAX_TS)), Now(world.at_us))
        if outputs or agent != node.agent:
            yield self._moved(world, name, node, agent, outputs, Action("poll", name))

    def _is_busy(self, world: SmallWorld, name: str, *, to_it: bool) -> bool:
        """Whether messages of the owner (or processor) of a node, or for its owner, are on their way."""
        for sender, to, messages in world.links:
            reports = sum(isinstance(m, self._reports) for m in messages)
            if sender == name and (len(messages) - reports if to_it else reports) >= self.bounds.on_way:
                return True
            if to_it and to == name and reports >= self.bounds.on_way:
                return True
        return False


class SmallCoordinated(SmallVariant):
    """The model of v4 with its coordinator: who is elected places the maintainer, moves it, and drains nodes.

    ``bounds``: what may happen, with ``coordinator``. Beside the design's safety no epoch has its maintainer on two
    nodes, and no node is ordered to stop while something is on it.
    """

    def __init__(self, bounds: Bounds) -> None:
        own = _at_once(bounds.lost > 0)
        manager = NodeManager(Maintainer(own), Dispatchers(own))
        super().__init__(bounds, Variant("v4", v4.V4Coordinator(), manager, v4.TO_COORDINATOR, ticks=True))
        self._reports = (*TO_MAINTAINER, *v4.TO_COORDINATOR)

    def _wishes(self) -> Iterator[Any]:
        """The maintainer on each node, and each node drained."""
        return chain(map(MoveMaintainer, self.names), map(Drain, self.names))

    def _is_other(self, owner: Any, before: Any) -> bool:
        """Whether a wish has changed the coordinator in more than its last words."""
        return bool(replace(owner, said=before.said) != before)

    def _carried_out(self, world: SmallWorld, action: Action, name: str, outputs: list[Any]) -> WorldStep[SmallWorld]:
        step = super()._carried_out(world, action, name, outputs)
        return step if step.broken else step._replace(broken=_coordinated(step.world, name))


def _coordinated(world: SmallWorld, name: str) -> tuple[str, str] | None:
    """See whether a node's maintainer is elsewhere too, or it was ordered to stop with something on it."""
    here = dict(world.nodes)[name].agent
    if here is None:
        return None
    if here.maintainer is not None:
        epoch = here.maintainer.owner_rev
        for other, node in world.nodes:
            there = node.agent.maintainer if node.agent and other != name else None
            if there is not None and there.owner_rev == epoch:
                return ONE, f"{other} and {name} both have the maintainer of epoch {epoch}"
    if here.liveness == STOPPING and (here.maintainer is not None or here.executor.pipelines):
        return EMPTY, f"{name} is ordered to stop and is not empty"
    return None


def small_world(bounds: Bounds, variant: str = "v2") -> Small:
    """Give the small world of a protocol, ``v2``, ``v3`` or ``v4``."""
    if bounds.coordinator:
        if variant != "v4":
            raise ContractError(f"{variant} has no coordinator", hint="It is of v4 alone: variant=v4,coordinator=true.")
        return SmallCoordinated(bounds)
    if variant == "v2":
        return Small(bounds)
    return SmallVariant(bounds, two_phases() if variant == "v3" else maintainer(lossy=bounds.lost > 0))
