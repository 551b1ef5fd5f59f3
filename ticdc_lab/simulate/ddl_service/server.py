"""A tidb-server of a registered cluster: it serves users with the schema it has loaded, and sends their DDL on.

Its session is its schema lease. The order of things keeps servers within two neighbouring states: it publishes a
version only when it uses it, and it serves for the first time only when, after it has published, no newer one is there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ticdc_lab.simulate.ddl_service import infosyncer, keys, owner, server_duties
from ticdc_lab.simulate.ddl_service.connection import Connection, answered, asked, is_over, kept, left, renewed
from ticdc_lab.simulate.ddl_service.mirror import Mirror
from ticdc_lab.simulate.ddl_service.owner import values
from ticdc_lab.simulate.ddl_service.server_state import (
    HABITS,
    PREFIXES,
    EnableDdl,
    Habits,
    Schema,
    ServerState,
    Slow,
)
from ticdc_lab.simulate.ddl_service.settings import Duties
from ticdc_lab.simulate.ddl_service.store_messages import Done, Found, Put
from ticdc_lab.simulate.ddl_service.versions import Versions
from ticdc_lab.simulate.machine import (
    Address,
    Asked,
    Changed,
    Event,
    Ignored,
    Now,
    Output,
    Received,
    ReceivedMany,
    Wake,
    one_by_one,
)

GONE = "its schema lease may be over"


@dataclass(frozen=True, slots=True)
class Server:
    """The machine of a tidb-server.

    Attributes
    ----------
    store
        Of its cluster.
    habits
        How it works.
    """

    store: Address
    habits: Habits = HABITS

    def start(self, address: Address, now: Now) -> tuple[ServerState, list[Output]]:
        """Ask for a session."""
        state = ServerState(address, Connection(self.store, address, 1, PREFIXES))
        if self.habits.enables_ddl:
            state = state._replace(ddl=self._candidate(address, 1))
        state, outputs = self._acted(state, now)
        wakes = [(self.habits.tick_us, "tick"), (self.habits.gc_us, "gc"), (self.habits.topology_us, "topology")]
        return state, [*(Wake(after_us, name) for after_us, name in wakes), *outputs]

    def step(self, state: ServerState, event: Event, now: Now) -> tuple[ServerState, list[Output]]:
        """Take an answer, a timer or a wish, after a look at the clock."""
        if is_over(state.link, now):
            state, outputs = self.ended(state, GONE)
            state, more = self.step(state, event, now)
            return state, [*outputs, *more]
        if isinstance(event, ReceivedMany):
            return one_by_one(self, state, event, now)
        if isinstance(event, Received):
            return self._received(state, event, now)
        if isinstance(event, Asked):
            if isinstance(event.command, Slow):
                return state._replace(slow_us=event.command.load_us), []
            if isinstance(event.command, EnableDdl):
                return self._enabled(state, event.command.on, now)
            return self._acted(state._replace(wishes=(*state.wishes, event.command)), now)
        outputs = []
        if event.name == "loaded":
            state, outputs = self._adopted(state)
        elif event.name == "upgraded":
            state, outputs = server_duties.upgraded(state, self.habits, now)
        elif event.name == "gc":
            state, outputs = server_duties.collected(state, self.habits, now)
            outputs = [Wake(self.habits.gc_us, "gc"), *outputs]
        elif event.name == "topology":
            state, outputs = server_duties.alive(state, self.habits, now)
        elif isinstance(event.name, tuple):
            state, outputs = server_duties.committed(state, event.name[1])
        elif event.name == "tick":
            outputs = [Wake(self.habits.tick_us, "tick")]
        state, more = self._acted(state, now)
        return state, [*outputs, *more]

    def ended(self, state: ServerState, because: str) -> tuple[ServerState, list[Output]]:
        """Serve nobody, and give the session back; what is left is a fresh server with its users' wishes."""
        outputs = left(state.link)
        if state.serves:
            outputs = [Changed("schema", state.serves.version, None, because), *outputs]
        fresh = ServerState(state.address, renewed(state.link), wishes=state.wishes, slow_us=state.slow_us)
        return fresh._replace(ddl=state.ddl, ddl_lives=state.ddl_lives), outputs

    def _received(self, state: ServerState, event: Received, now: Now) -> tuple[ServerState, list[Output]]:
        message: Any = event.message
        if message.tag[0] != state.address:
            return self._received_by_ddl(state, message, now)
        link = answered(state.link, message, self.habits.terms)
        if link is None:
            return state, [Ignored(message, "it answers an earlier session")]
        state = state._replace(link=link)
        if is_over(link, now):
            state, outputs = self.ended(state, GONE)
        else:
            outputs = []
            if isinstance(message, (Done, Found)):
                state, outputs = self._settled(state, message, now)
        state, more = self._acted(state, now)
        return state, [*outputs, *more]

    def _settled(self, state: ServerState, answer: Done | Found, now: Now) -> tuple[ServerState, list[Output]]:
        what: str = answer.tag[2]  # type: ignore[index]
        if what in server_duties.WISHES:
            return server_duties.answered_wish(state, answer, now)
        if what == "publish" and isinstance(answer, Done) and answer.succeeded:
            return state._replace(published=state.publishing), []
        return state, []

    # The DDL of its cluster, which any server campaigns for that has tidb_enable_ddl

    def _candidate(self, address: Address, life: int) -> owner.OwnerState:
        return owner.opened(self.store.removeprefix("tikv://").rpartition(":")[0], self.store, life, address)

    def _enabled(self, state: ServerState, on: bool, now: Now) -> tuple[ServerState, list[Output]]:
        """Campaign from now on, or own nothing any more and let others have it."""
        if on == (state.ddl is not None):
            return state, []
        if not on:
            assert state.ddl is not None
            return state._replace(ddl=None), owner.stopped(state.ddl, "tidb_enable_ddl is off")
        lives = state.ddl_lives + 1
        return self._acted(state._replace(ddl=self._candidate(state.address, lives), ddl_lives=lives), now)

    def _received_by_ddl(self, state: ServerState, message: Any, now: Now) -> tuple[ServerState, list[Output]]:
        own = state.ddl
        link = answered(own.link, message, self.habits.terms) if own else None
        if own is None or link is None:
            return state, [Ignored(message, f"{state.address} has no such session for its cluster's DDL any more")]
        own = own._replace(link=link)
        if isinstance(message, Done):
            own = owner.settled(own, message)
        return self._campaigned(state._replace(ddl=own), now)

    def _campaigned(self, state: ServerState, now: Now) -> tuple[ServerState, list[Output]]:
        if state.ddl is None:
            return state, []
        duties = Duties(Versions(self.habits.version, "v0.0.0"), self.habits.terms)
        own, outputs = owner.acted(state.ddl, duties, now)
        return state._replace(ddl=own), outputs

    def _acted(self, state: ServerState, now: Now) -> tuple[ServerState, list[Output]]:
        state, first = self._campaigned(state, now)
        link, outputs = kept(state.link, self.habits.terms, now)
        outputs = [*first, *outputs]
        state = state._replace(link=link)
        if link.mirror is None or not link.lease:
            return state, outputs
        state, more = self._loaded(state, link.mirror, now)
        outputs += more
        state, more = server_duties.done(state, link.mirror, self.habits, now)
        return state, [*outputs, *more]

    def _loaded(self, state: ServerState, mirror: Mirror, now: Now) -> tuple[ServerState, list[Output]]:
        """Load what is new, publish what is used, and serve."""
        newest = int(mirror.value(keys.GLOBAL_VERSION) or "0")
        outputs: list[Output] = []
        if state.loading is None and (state.loaded is None or state.loaded.version != newest):
            state = state._replace(loading=Schema(newest, values(mirror.under(keys.SCHEMA))))
            outputs.append(Wake(state.slow_us or self.habits.load_us, "loaded"))
        state, more = self._tells(state, now)
        outputs += more
        loaded = state.loaded
        if state.serves is not None or loaded is None or not server_duties.is_bootstrapped(mirror, self.habits):
            return state, outputs
        if state.published == loaded.version == newest:
            state = state._replace(serves=loaded)
            outputs.append(Changed("schema", None, loaded.version, "it is published, and still the newest"))
        return state, outputs

    def _tells(self, state: ServerState, now: Now) -> tuple[ServerState, list[Output]]:
        version = state.loaded.version if state.loaded else -1
        if version < 0 or version == state.published or "publish" in state.link.pending:
            return state, []
        puts = [Put(keys.VERSIONS + state.ddl_id, str(version), state.link.lease)]
        if state.published < 0:
            puts += infosyncer.published(state.ddl_id, state.address, self.habits.version, state.link.lease)
        link, outputs = asked(state.link, "publish", (), tuple(puts), now)
        return state._replace(link=link, publishing=version), outputs

    def _adopted(self, state: ServerState) -> tuple[ServerState, list[Output]]:
        """Use what has been loaded; a server that serves goes on with it at once, and then publishes it."""
        if state.loading is None:
            return state, []
        before, after = state.serves, state.loading
        state = state._replace(loaded=after, loading=None)
        if before is None:
            return state, []
        changed = Changed("schema", before.version, after.version, "it has loaded the newest")
        return state._replace(serves=after), [changed]
