"""The size of the real scheduler's own benchmark: 131,072 tables on eight captures."""

from __future__ import annotations

import pytest

from ticdc_lab.machines.clock import ts_of
from ticdc_lab.machines.machine import Asked, Broken, Now, Received, Send
from ticdc_lab.simulate.scheduler.roles import Poll, Rebalance, Tick
from ticdc_lab.simulate.scheduler.v3 import V3Agent, V3Coordinator, V3Settings


class Cluster:
    """An owner and its processors; every message arrives within the round, 50 ms."""

    def __init__(self, tables, captures, batch):
        settings = V3Settings(add_table_batch_size=batch)
        self.coordinator, self.agent = V3Coordinator(settings), V3Agent(settings)
        self.at_us, self.tables, self.messages, self.mail = 0, frozenset(range(tables)), 0, []
        self.agents = {}
        for i in range(captures):
            self.join(f"capture-{i}")
        self.owner, _ = self.coordinator.elected("capture-0", 1, Now(0))

    def join(self, name):
        self.agents[name], _ = self.agent.start(name, Now(self.at_us))

    def ask(self, command):
        self.owner, outputs = self.coordinator.step(self.owner, Asked(command), Now(self.at_us))
        self.post("capture-0", outputs)

    def post(self, sender, outputs):
        assert not any(isinstance(output, Broken) for output in outputs)
        self.mail += [(sender, output.to, output.message) for output in outputs if isinstance(output, Send)]

    def tell(self, name, event):
        self.agents[name], outputs = self.agent.step(self.agents[name], event, Now(self.at_us))
        self.post(name, outputs)

    def round(self):
        self.at_us += 50_000
        for name in sorted(self.agents):
            self.tell(name, Asked(Poll(ts_of(self.at_us))))
        self.ask(Tick(frozenset(self.agents), self.tables, ts_of(0)))
        while self.mail:
            mail, self.mail = self.mail, []
            self.messages += len(mail)
            for sender, to, message in mail:
                if type(message).__name__.endswith("Response"):
                    self.owner, outputs = self.coordinator.step(self.owner, Received(sender, message), Now(self.at_us))
                    self.post(to, outputs)
                else:
                    self.tell(to, Received(sender, message))

    def counts(self):
        return {name: len(spans) for name, spans in self.owner.replications.primaries.items()}

    def until(self, done):
        for _ in range(1_000):
            self.round()
            if done():
                return
        raise AssertionError(self.counts())


def schedule_and_rebalance(tables, batch):
    """From nothing to all replicated, then even again after a ninth capture came."""
    it = Cluster(tables, 8, batch)
    it.until(lambda: sum(it.counts().values()) == tables)
    assert max(it.counts().values()) - min(it.counts().values()) <= 1
    assert it.messages < 6 * tables
    it.join("capture-8")
    for _ in range(3):
        it.round()
    it.ask(Rebalance())
    before = it.messages
    share = -(-tables // 9)
    it.until(lambda: sum(it.counts().values()) == tables and max(it.counts().values()) <= share)
    assert it.messages - before < 12 * share
    for _ in range(200):
        it.round()
    assert not it.owner.replications.exact and not it.owner.replications.watched


def test_a_thousand_tables_are_scheduled_and_rebalanced():
    """About five messages a table, nine a move; at rest nothing is looked at table by table."""
    schedule_and_rebalance(1_024, 50)


@pytest.mark.soak
def test_131072_tables_are_scheduled_and_rebalanced():
    """The same in the size of the real scheduler's benchmark."""
    schedule_and_rebalance(131_072, 1_000)
