"""A small random world around the v3 machines: messages lost, late and doubled, captures dying, owners switching.

It looks at every step whether two captures write one span. The kernel of the package is not used: this world is
smaller, nastier and independent of it.
"""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field, replace

from ticdc_lab.machines.clock import ts_of
from ticdc_lab.machines.machine import Asked, Broken, Changed, Decided, Now, Received, Send
from ticdc_lab.simulate.scheduler.executor import WRITING, TablePace, checkpoint_of
from ticdc_lab.simulate.scheduler.roles import Drain, MoveTable, Poll, Rebalance, Restart, Tick, Watermarks
from ticdc_lab.simulate.scheduler.v3 import (
    V3Agent,
    V3AgentState,
    V3Coordinator,
    V3CoordinatorState,
    V3Settings,
)

STEP_US = 10_000


class Violation(Exception):
    """Two captures write one span, a machine is broken, or the watermark is wrong."""


@dataclass
class World:
    """The state of a run; ``hostile`` ends when ``faults`` steps are over."""

    seed: int
    settings: V3Settings
    tables: frozenset[int]
    captures: int = 3
    loss: float = 0.1
    double: float = 0.1
    late_us: int = 300_000
    at_us: int = 1_000_000
    agents: dict[str, V3AgentState] = field(default_factory=dict)
    owners: dict[str, V3CoordinatorState] = field(default_factory=dict)
    owner: str = ""
    rev: int = 0
    born: int = 0
    checkpoint_ts: int = ts_of(0)
    seen: dict[str, frozenset[str]] = field(default_factory=dict)
    mail: list[tuple[int, int, str, str, object, bool]] = field(default_factory=list)
    posted: int = 0
    hostile: bool = True
    said: list[object] = field(default_factory=list)
    watermarks: Watermarks | None = None
    events: int = 0
    downstream: dict[object, int] = field(default_factory=dict)
    created: dict[object, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.coordinator = V3Coordinator(self.settings)
        self.agent = V3Agent(self.settings)
        self.created = dict.fromkeys(self.tables, self.checkpoint_ts)
        for _ in range(self.captures):
            self.join()
        self.elect()

    def now(self) -> Now:
        return Now(self.at_us)

    def join(self) -> None:
        self.born += 1
        name = f"capture-{self.born}"
        self.agents[name], _ = self.agent.start(name, self.now())

    def elect(self) -> None:
        """Make a random live capture the owner; old ones continue in their belief, with the captures they knew."""
        self.rev += 1
        self.seen = {name: frozenset(self.agents) for name in self.owners}
        self.owner = self.random.choice(sorted(self.agents))
        self.owners.pop(self.owner, None)
        self.owners[self.owner], _ = self.coordinator.elected(self.owner, self.rev, self.now())

    def kill(self, name: str) -> None:
        """Let the session of a capture end: it stops writing before any capture hears of it."""
        del self.agents[name]
        self.owners.pop(name, None)
        if name == self.owner:
            self.elect()

    def tick(self, name: str) -> None:
        alive = frozenset(self.agents)
        if name != self.owner:
            alive = self.seen[name] & alive
        command = Tick(alive, self.tables, self.checkpoint_ts)
        for output in self._owner(name, Asked(command)):
            if isinstance(output, Watermarks) and name == self.owner:
                self._take(output)

    def _take(self, watermarks: Watermarks) -> None:
        self.watermarks = watermarks
        if watermarks.checkpoint_ts is None:
            return
        if watermarks.checkpoint_ts > self.lowest():
            raise Violation(f"checkpoint {watermarks.checkpoint_ts} is above {self.lowest()} of the slowest table")
        self.checkpoint_ts = max(self.checkpoint_ts, watermarks.checkpoint_ts)

    def lowest(self) -> int:
        """Give what is downstream of all tables: of one that no one writes, what was when its last writer ended."""
        return min(self.downstream.get(table, self.created[table]) for table in self.tables)

    def _owner(self, name: str, event: Asked | Received) -> list[object]:
        self.owners[name], outputs = self.coordinator.step(self.owners[name], event, self.now())
        return self._outputs(name, "agent", outputs)

    def _agent(self, name: str, event: Asked | Received) -> None:
        self.agents[name], outputs = self.agent.step(self.agents[name], event, self.now())
        self._outputs(name, "owner", outputs)

    def _outputs(self, name: str, role: str, outputs: list[object]) -> list[object]:
        self.events += 1
        for output in outputs:
            if isinstance(output, Broken):
                raise Violation(f"{output.invariant}: {output.because}")
            if isinstance(output, Send):
                self._post(name, output, role)
            if isinstance(output, Changed | Decided):
                self.said.append((self.at_us, name, output))
        return outputs

    def _post(self, sender: str, send: Send, role: str) -> None:
        if self.hostile and self.random.random() < self.loss:
            return
        copies = 2 if self.hostile and self.random.random() < self.double else 1
        for _ in range(copies):
            delay = self.random.randrange(1_000, self.late_us if self.hostile else 5_000)
            self.posted += 1
            heapq.heappush(self.mail, (self.at_us + delay, self.posted, sender, send.to, send.message, role == "agent"))

    def deliver(self) -> None:
        while self.mail and self.mail[0][0] <= self.at_us:
            _, _, sender, to, message, for_agent = heapq.heappop(self.mail)
            if for_agent and to in self.agents:
                self._agent(to, Received(sender, message))
            elif not for_agent and to in self.owners:
                self._owner(to, Received(sender, message))
            self.audit()

    def audit(self) -> None:
        """No one writes what another writes."""
        writers: dict[object, str] = {}
        for name in sorted(self.agents):
            executor = self.agents[name].executor
            for span, pipeline in executor.pipelines.items():
                if pipeline.state not in WRITING:
                    continue
                if span in writers:
                    raise Violation(f"table {span} is written by {writers[span]} and {name}")
                writers[span] = name

    def note_downstream(self) -> None:
        for name in sorted(self.agents):
            executor = self.agents[name].executor
            for span, pipeline in executor.pipelines.items():
                if pipeline.state in WRITING:
                    at_ts = checkpoint_of(executor, span, self.at_us)
                    self.downstream[span] = max(self.downstream.get(span, 0), at_ts)

    def step(self) -> None:
        """Let 10 ms pass."""
        self.at_us += STEP_US
        self.note_downstream()
        self.deliver()
        if self.hostile:
            self.meddle()
        for name in sorted(self.agents):
            if self.random.random() < 0.3:
                self._agent(name, Asked(Poll(limit_ts=(1 << 62))))
        for name in sorted(self.owners):
            if self.random.random() < 0.3:
                self.tick(name)
        self.audit()
        self.note_downstream()

    def meddle(self) -> None:
        dice = self.random.random()
        some = self.random.choice(sorted(self.agents))
        if dice < 0.002 and len(self.agents) > 1:
            self.kill(some)
        elif dice < 0.004 and len(self.agents) < 5:
            self.join()
        elif dice < 0.008:
            self.elect()
        elif dice < 0.011:
            self._agent(some, Asked(Restart()))
        elif dice < 0.04:
            table = self.random.choice(sorted(self.tables))
            self._owner(self.owner, Asked(MoveTable(table, some)))
        elif dice < 0.043:
            self._owner(self.owner, Asked(Rebalance()))
        elif dice < 0.044:
            self._owner(self.owner, Asked(Drain(some)))

    def replace_table(self, old: int, new: int) -> None:
        """Drop a table and create another, which has nothing below the checkpoint."""
        self.tables = self.tables - {old} | {new}
        self.created[new] = self.checkpoint_ts

    def heal(self) -> None:
        """No more faults; only the true owner continues, and one capture at least is not stopping for good."""
        self.hostile = False
        self.join()
        self.owners = {self.owner: self.owners[self.owner]}

    def is_settled(self) -> bool:
        """Whether every wanted span is Replicating at its owner and written by exactly that capture."""
        owner = self.owners[self.owner]
        sets = owner.replications.sets
        if owner.tables != self.tables or set(sets) != set(owner.plan.spans):
            return False
        for span in sets:
            found = sets[span]
            agent = self.agents.get(found.primary or "")
            if found.state != "Replicating" or agent is None:
                return False
            pipeline = agent.executor.pipelines.get(span)
            if pipeline is None or pipeline.state != "replicating":
                return False
        return True


def run(seed: int, *, steps: int = 1_500, tables: int = 4) -> World:
    """Run with faults for ``steps`` of 10 ms, then without until all is settled."""
    rng = random.Random(seed)
    pace = TablePace(prepare_us=rng.choice([10_000, 200_000]), stop_us=rng.choice([10_000, 400_000, 3_000_000]))
    settings = replace(V3Settings(), pace=pace, check_balance_us=500_000)
    world = World(seed, settings, frozenset(range(1, tables + 1)))
    for step in range(steps):
        if step == steps // 2:
            world.replace_table(1, tables + 1)
        world.step()
    world.heal()
    for _ in range(3_000):
        world.step()
        if world.is_settled() and world.watermarks and world.watermarks.checkpoint_ts:
            return world
    raise Violation(f"not settled: {sorted(world.owners[world.owner].replications.sets.items())}")
