"""Bugs of the design's protocol (v2) and of the two phases (v3), each put in the place of one rule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from immutables import Map
from planting import Bugs, Patch, planted_in

from ticdc_lab.machines.machine import Send
from ticdc_lab.simulate.scheduler import agent, dispatcher, etcd, small
from ticdc_lab.simulate.scheduler.dispatcher_state import REMOVING, DispatcherState
from ticdc_lab.simulate.scheduler.etcd_messages import PutStatus
from ticdc_lab.simulate.scheduler.messages import DispatchTableResponse, Sync
from ticdc_lab.simulate.scheduler.roles import order
from ticdc_lab.simulate.scheduler.v3 import agent as v3_agent
from ticdc_lab.simulate.scheduler.v3 import coordinator as v3_coordinator
from ticdc_lab.simulate.scheduler.v3 import replication_set
from ticdc_lab.simulate.scheduler.v3.agent import V3Owner

PROMOTE_EARLY = "promote before the source stopped"
IGNORE_REVISION = "ignore the owner revision"
SKIP_UNDETERMINED = "skip the undetermined role"
IGNORE_EPOCH = "ignore the processor epoch"
IGNORE_ORDER = "take messages out of order"

Agent, Dispatcher, Etcd, Small = agent.Agent, dispatcher.Dispatcher, etcd.Etcd, small.Small


def _obeys_stale_owner() -> list[Patch]:
    sound = Agent._heard

    def heard(self: Any, state: Any, sender: Any, message: Any) -> Any:
        if state.owner is not None and message.owner_rev < state.owner.rev:
            new = agent.Owner(sender, message.owner_rev)
            return state._replace(owner=new, owes_sync=True, reported=None), None
        return sound(self, state, sender, message)

    return [(Agent, "_heard", heard), (Small, "_pruned", lambda self, world, *_: world)]


def _answers_at_once() -> list[Patch]:
    sound = Agent._ordered

    def ordered(self: Any, state: Any, message: Any, now: Any) -> Any:
        after, outputs = sound(self, state, message, now)
        answer = (
            [Send(state.owner.address, DispatchTableResponse(message.id, state.epoch))] if message.is_delete else []
        )
        return after, [*outputs, *answer]

    return [(Agent, "_ordered", ordered)]


def _reports_the_newest() -> list[Patch]:
    sound = agent._reported

    def reported(state: Any, *given: Any) -> Any:
        newest = state.executor._replace(pending=Map(), behind=Map())
        return sound(state._replace(executor=newest), *given)._replace(executor=state.executor)

    return [(agent, "_reported", reported)]


def _tells_all_running() -> list[Patch]:
    def sync(self: Any, state: Any) -> Sync:
        return Sync(self.version, tuple(sorted(state.executor.pipelines, key=order)), (), (), state.epoch)

    return [(Agent, "_sync", sync)]


def _ignores_running_of_sync() -> list[Patch]:
    sound = Dispatcher._synced

    def synced(self: Any, state: Any, sender: Any, status: Any, told: Sync) -> Any:
        return sound(self, state, sender, status, told._replace(running=(), adding=(), removing=()))

    return [(Dispatcher, "_synced", synced)]


def _takes_any_response() -> list[Patch]:
    sound = Dispatcher._finished

    def finished(self: Any, state: Any, sender: Any, status: Any, response: Any) -> Any:
        return sound(self, state, sender, status, response._replace(epoch=status.epoch))

    return [(Dispatcher, "_finished", finished)]


def _skips_minimum() -> list[Patch]:
    sound = Dispatcher._advanced

    def advanced(self: Any, state: Any, tick: Any, outputs: Any) -> Any:
        found = [s for c, s in state.captures.items() if state.tables.count_on(c)]
        newest = {n: max((getattr(s, n) for s in found), default=0) for n in ("checkpoint_ts", "resolved_ts")}
        raised = state._replace(captures=Map({c: s._replace(**newest) for c, s in state.captures.items()}))
        after, outputs = sound(self, raised, tick, outputs)
        return after._replace(captures=state.captures), outputs

    return [(Dispatcher, "_advanced", advanced)]


def _starts_at_the_newest() -> list[Patch]:
    sound = Dispatcher._scheduled

    def scheduled(self: Any, state: Any, tick: Any, now: Any, outputs: Any) -> Any:
        newest = max(s.checkpoint_ts for s in state.captures.values())
        return sound(self, state, tick._replace(checkpoint_ts=max(tick.checkpoint_ts, newest)), now, outputs)

    return [(Dispatcher, "_scheduled", scheduled)]


def _advances_in_flight() -> list[Patch]:
    sound = Dispatcher._scheduled
    return [(Dispatcher, "_scheduled", lambda *given: (sound(*given)[0], None))]


def _forgets_removals() -> list[Patch]:
    sound = dispatcher.TickWork.done

    def done(self: Any) -> DispatcherState:
        state = sound(self)
        draft = state.tables.draft()
        for key, record in state.tables.records.items():
            if record.status == REMOVING:
                draft.remove(key)
        return state._replace(tables=draft.done())

    return [(dispatcher.TickWork, "done", done)]


def _trusts_every_owner() -> list[Patch]:
    """The status is taken from an owner of the past."""
    requested, put = Etcd._requested, Etcd._put

    def any_requested(self: Any, state: Any, sender: Any, message: Any, now: Any) -> Any:
        if isinstance(message, PutStatus):
            return self._put(state, message, now)
        return requested(self, state, sender, message, now)

    def any_put(self: Any, state: Any, message: Any, now: Any) -> Any:
        return put(self, state, message._replace(owner_rev=etcd.owner_of(state)[1]), now)

    return [(Etcd, "_requested", any_requested), (Etcd, "_put", any_put), (etcd, "superseded", lambda *_: "")]


V2: Bugs = {
    "obeys_stale_owner": _obeys_stale_owner,
    "obeys_old_epoch": lambda: [(agent, "_void", lambda *_: None)],
    "keeps_epoch": lambda: [(agent, "_begun", lambda state, _: state)],
    "answers_at_once": _answers_at_once,
    "reports_the_newest": _reports_the_newest,
    "tells_all_running": _tells_all_running,
    "dispatches_before_sync": lambda: [(dispatcher, "unsynced", lambda _: None)],
    "ignores_running_of_sync": _ignores_running_of_sync,
    "takes_any_response": _takes_any_response,
    "skips_minimum": _skips_minimum,
    "keeps_old_watermark": lambda: [(dispatcher, "_lowered", lambda state, *_: state)],
    "keeps_the_lost": lambda: [(dispatcher, "without_the_lost", lambda state, *_: state)],
    "starts_at_the_newest": _starts_at_the_newest,
    "advances_in_flight": _advances_in_flight,
    "forgets_removals": _forgets_removals,
    "forgets_monotony": lambda: [(Small, "_monotone", lambda self, new_ts, known_ts: new_ts)],
    "trusts_every_owner": _trusts_every_owner,
}


def _promotes_early() -> list[Patch]:
    sound, commit = replication_set.TURNS, replication_set.COMMIT
    hasty = tuple(turn for turn in sound[commit] if turn.sends != replication_set.PRIMARY_STOPS)
    return [(replication_set, "TURNS", {**sound, commit: hasty})]


def _skips_undetermined() -> list[Patch]:
    sound = replication_set.has_role
    return [(replication_set, "has_role", lambda rep, role: role != replication_set.UNDETERMINED and sound(rep, role))]


def _ignores_revision() -> list[Patch]:
    def heard(state: Any, sender: Any, header: Any) -> Any:
        new = V3Owner(sender, header.owner_revision)
        return (state if state.owner == new else replace(state, owner=new, taken=Map())), []

    return [(v3_agent, "_heard_owner", heard)]


def _ignores_epoch() -> list[Patch]:
    sound = v3_agent.V3Agent._request

    def request(self: Any, state: Any, message: Any, now: Any) -> Any:
        header = message.header._replace(processor_epoch=state.epoch)
        return sound(self, state, message._replace(header=header), now)

    return [(v3_agent.V3Agent, "_request", request)]


def _ignores_order() -> list[Patch]:
    request, obstacle = v3_agent.V3Agent._request, v3_coordinator.V3Coordinator._obstacle

    def unordered(message: Any) -> Any:
        return message._replace(header=message.header._replace(seq=0))

    return [
        (v3_agent.V3Agent, "_request", lambda self, state, message, now: request(self, state, unordered(message), now)),
        (
            v3_coordinator.V3Coordinator,
            "_obstacle",
            lambda self, state, status, message: obstacle(self, state, status, unordered(message)),
        ),
    ]


V3: Bugs = {
    PROMOTE_EARLY: _promotes_early,
    IGNORE_REVISION: _ignores_revision,
    SKIP_UNDETERMINED: _skips_undetermined,
    IGNORE_EPOCH: _ignores_epoch,
    IGNORE_ORDER: _ignores_order,
}


def planted(*bugs: str) -> Any:
    """Let some bugs of either protocol be there."""
    return planted_in({**V2, **V3}, *bugs)
