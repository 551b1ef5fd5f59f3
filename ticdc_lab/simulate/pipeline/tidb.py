"""The clients of TiKV: they carry out a load by Percolator's two phases, each client one transaction at a time.

A transaction gets its start_ts when it begins and its commit_ts when all its locks are there; it is committed when its
primary key is. Commands to one store travel together. A DDL waits for the transactions on its table, and they for it.
"""

from __future__ import annotations

from ticdc_lab.simulate.machine import (
    Address,
    Changed,
    Event,
    Fired,
    Now,
    Output,
    Received,
    ReceivedMany,
    Send,
    Wake,
)
from ticdc_lab.simulate.pipeline.clients import Clients
from ticdc_lab.simulate.pipeline.keys import FIRST, LAST
from ticdc_lab.simulate.pipeline.kv_messages import BatchResponses, GetRegions, Regions
from ticdc_lab.simulate.pipeline.load import Load
from ticdc_lab.simulate.pipeline.tidb_state import Item, TidbState, items_of

TIDB, PD = "tidb", "pd"


class Tidb:
    """The machine of all clients.

    Parameters
    ----------
    load
        What they do.
    batch_us
        Commands of so long a time travel together.
    backoff_us
        After how long a refused command is tried again.
    timeout_us
        After how long without an answer commands are sent again.
    """

    def __init__(
        self, load: Load, *, batch_us: int = 5_000, backoff_us: int = 20_000, timeout_us: int = 1_000_000
    ) -> None:
        self.items: tuple[Item, ...] = items_of(load)
        self.batch_us = batch_us
        self.backoff_us = backoff_us
        self.timeout_us = timeout_us

    def start(self, address: Address, now: Now) -> tuple[TidbState, list[Output]]:
        """Ask for the regions."""
        state = TidbState(address, asked_us=now.at_us)
        return state, [Send(PD, GetRegions(FIRST, LAST)), Wake(self.batch_us, "tick")]

    def step(self, state: TidbState, event: Event, now: Now) -> tuple[TidbState, list[Output]]:
        """Take answers, and do what is due."""
        clients = Clients(self.items, state, now, self.backoff_us)
        if isinstance(event, (Received, ReceivedMany)):
            for message in event.messages if isinstance(event, ReceivedMany) else (event.message,):
                if isinstance(message, BatchResponses):
                    clients.answered(message)
                elif isinstance(message, Regions):
                    clients.routed(message)
            return clients.done(flush=False)
        if isinstance(event, Fired) and event.name == "tick":
            clients.late(self.timeout_us)
            clients.begin()
            clients.again()
            state, outputs = clients.done(flush=True)
            return state, [*outputs, *self._wake(state, now)]
        if isinstance(event, Fired):
            held: int = event.name  # type: ignore[assignment]
            clients.let_go(held)
        return clients.done(flush=False)

    def _wake(self, state: TidbState, now: Now) -> list[Output]:
        """Come back soon while something is open, else when the next item is due; not at all when all is done."""
        if state.open or state.waiting or state.again or state.asked_us is not None:
            return [Wake(self.batch_us, "tick")]
        if state.next < len(self.items):
            return [Wake(max(self.batch_us, self.items[state.next].at_us - now.at_us), "tick")]
        done = f"{state.committed} transactions committed, {state.rolled_back} rolled back"
        return [Changed("load", None, "done", done)]
