"""A maintainer and nodes without a network: every message is delivered, kept back, or given twice by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ticdc_lab.machines.clock import ts_of
from ticdc_lab.machines.machine import Asked, Now, Received, Send
from ticdc_lab.simulate.scheduler.roles import Key, Poll, Restart, Tick, Watermarks
from ticdc_lab.simulate.scheduler.v4 import Dispatchers, DispatchersState, Maintainer, MaintainerState, V4Settings

STEP_US = 50_000


class Cluster:
    """Nodes ``n1``, ``n2``, ...; the maintainer is on ``n1`` unless ordered otherwise."""

    def __init__(self, nodes: int, tables: Iterable[Key], settings: V4Settings = V4Settings()) -> None:  # noqa: B008
        self.maintainer, self.dispatchers = Maintainer(settings), Dispatchers(settings)
        self.at_us, self.tables = 0, frozenset(tables)
        self.nodes: dict[str, DispatchersState] = {}
        self.queue: list[tuple[str, str, Any]] = []
        self.outputs: list[Any] = []
        self.watermarks = Watermarks(None, None)
        self.checkpoint_ts = ts_of(0)
        for i in range(nodes):
            self.join(f"n{i + 1}")
        self.elect("n1", 1)

    @property
    def now(self) -> Now:
        """What a node sees of the world."""
        return Now(self.at_us)

    def join(self, node: str) -> None:
        """Let a node register."""
        self.nodes[node] = self.dispatchers.start(node, self.now)[0]

    def elect(self, node: str, owner_rev: int) -> None:
        """Let another maintainer begin."""
        self.home = node
        self.state: MaintainerState = self.maintainer.elected(node, owner_rev, self.now)[0]

    def _took(self, sender: str, outputs: list[Any]) -> None:
        self.outputs += outputs
        for output in outputs:
            if isinstance(output, Send):
                self.queue.append((sender, output.to, output.message))
            if isinstance(output, Watermarks):
                self.watermarks = output
                self.checkpoint_ts = max(self.checkpoint_ts, output.checkpoint_ts or 0)

    def ask(self, command: Any) -> None:
        """Give the maintainer a command."""
        self.state, outputs = self.maintainer.step(self.state, Asked(command), self.now)
        self._took(self.home, outputs)

    def tick(self, barrier_ts: int | None = None) -> None:
        """Let the maintainer look around."""
        self.ask(Tick(frozenset(self.nodes), self.tables, self.checkpoint_ts, barrier_ts))

    def poll(self, node: str) -> None:
        """Let a node look around."""
        self.nodes[node], outputs = self.dispatchers.step(
            self.nodes[node], Asked(Poll(ts_of(self.at_us + STEP_US))), self.now
        )
        self._took(node, outputs)

    def restart(self, node: str) -> None:
        """Let the processor of a node lose its state."""
        self.nodes[node], outputs = self.dispatchers.step(self.nodes[node], Asked(Restart()), self.now)
        self._took(node, outputs)

    def give(self, sender: str, to: str, message: Any) -> list[Any]:
        """Deliver a message to whom it is for."""
        if type(message).__name__ in ("MaintainerBootstrapResponse", "HeartBeatRequest"):
            self.state, outputs = self.maintainer.step(self.state, Received(sender, message), self.now)
            self._took(self.home, outputs)
            return outputs
        self.nodes[to], found = self.dispatchers.step(self.nodes[to], Received(sender, message), self.now)
        self._took(to, found)
        return found

    def deliver(self, keeps: Callable[[str, str, Any], bool] = lambda *_: False) -> list[tuple[str, str, Any]]:
        """Deliver all messages under way but those kept back, which are given back."""
        kept = []
        while self.queue:
            sender, to, message = self.queue.pop(0)
            if to not in self.nodes:
                continue
            if keeps(sender, to, message):
                kept.append((sender, to, message))
            else:
                self.give(sender, to, message)
        return kept

    def run(self, steps: int = 40, keeps: Callable[[str, str, Any], bool] = lambda *_: False) -> None:
        """Let everything but the messages kept back go its way for a while."""
        for _ in range(steps):
            self.at_us += STEP_US
            self.tick()
            for node in sorted(self.nodes):
                self.poll(node)
            self.deliver(keeps)
            self.is_safe()

    def is_safe(self) -> None:
        """Nothing runs on two nodes."""
        running = [key for node in self.nodes.values() for key in node.executor.pipelines]
        assert len(running) == len(set(running)), "No Double Write"

    def where(self) -> dict[Key, str]:
        """Give the node of each running span."""
        return {key: name for name in sorted(self.nodes) for key in self.nodes[name].executor.pipelines}
