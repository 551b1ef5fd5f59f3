"""Operators on their way: admitted against limits and what runs already, sent step by step, watched, ended.

pkg/schedule/operator/operator_controller.go; `pd_notes.md` section 8. PD's waiting queue is emptied as it is filled,
so that an operator is promoted at once or cancelled.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ticdc_lab.pd_core.config import Config
from ticdc_lab.pd_core.lifecycle import (
    CANCELED,
    CREATED,
    EXPIRED,
    REPLACED,
    STARTED,
    SUCCESS,
    TIMEOUT,
    impossible,
    status_at,
)
from ticdc_lab.pd_core.limits import available, step_cost, window_open, without_snapshot
from ticdc_lab.pd_core.operators import AddLearner, Kind, Operator, Priority, RemovePeer, counted_as, timeout_s
from ticdc_lab.simulate.pd.world.running import (
    Fast,
    Finished,
    OperatorLife,
    Sums,
    conf_changes,
    effects_on_stores,
    finished_of,
    merges,
    together,
    told_again_after_us,
)
from ticdc_lab.simulate.pd.world.start import NEVER_US, SECOND_US
from ticdc_lab.simulate.pd.world.stores import ADD, REMOVE, SEND
from ticdc_lab.simulate.pd.world.tasks import is_done

if TYPE_CHECKING:
    from ticdc_lab.pd_core.cluster import Cluster, Influence
    from ticdc_lab.simulate.pd.world.columns import AllRegions
    from ticdc_lab.simulate.pd.world.stores import Nodes
    from ticdc_lab.simulate.pd.world.tasks import Tasks

ALREADY, LIMIT, EPOCH, GONE, OLD, FULL = (
    "the region has an operator already", "a store limit is used up", "the region changed meanwhile",
    "the region is gone", "it waited too long", "as many of its name wait as scheduler-max-waiting-operator allows",
)  # fmt: skip
FORGOTTEN = "another PD leads now"
_SMALL_MIB = 20
_SOON_US = 200_000


class Controller:
    """All running operators, one a region.

    ``pushes`` is PD's queue of steps to send again: when, the operator's number and its region's row.
    ``unheard`` are regions that changed and whose leaders could not report it yet.
    ``on_change`` receives every state that an operator takes; ``ended`` gets those that were started; ``config``
    gives PD's settings.
    """

    def __init__(self, regions: AllRegions, nodes: Nodes, tasks: Tasks) -> None:
        self.regions, self.nodes, self.tasks = regions, nodes, tasks
        self.running: dict[int, OperatorLife] = {}
        self.pushes: list[tuple[int, int, int]] = []
        self.counts: Counter[Kind] = Counter()
        self.unfinished = Sums()
        self.fast = Fast(nodes.settings.fast_operator_us)
        self.influences: dict[bool, tuple[tuple[int, int], dict[int, Influence]]] = {}
        self.created: Counter[str] = Counter()
        self.ended: list[Finished] = []
        self.number = 0
        self.unheard: set[int] = set()
        self.on_change: Callable[[OperatorLife, str], None] = lambda running, before: None
        self.on_end: Callable[[OperatorLife], None] = lambda running: None
        self.config: Callable[[], Config] = Config

    @property
    def has_windows(self) -> bool:
        """Whether store limits are windows of snapshots (v2)."""
        return self.config().store_limit_version == "v2"

    def influence(self, *, fast_too: bool) -> dict[int, Influence]:
        """Give the net effect of running operators on stores, and of those that finished quickly."""
        version = self.unfinished.version, self.fast.sums.version if fast_too else 0
        if self.influences.get(fast_too, (None, {}))[0] != version:
            fast = self.fast.sums.of if fast_too else {}
            self.influences[fast_too] = version, together(self.unfinished.of, fast)
        return self.influences[fast_too][1]

    def made(self, op: Operator, now_us: int, because: str = "", source: str = "") -> OperatorLife:
        self.number += 1
        row, r = self.regions.row_of[op.region], self.regions
        made = OperatorLife(op, row, self.number, now_us, int(r.conf[row]), int(r.version[row]), because, source)
        made.keys = r.range_of(row)
        return made

    def full_limits(self, ops: Sequence[Operator], now_us: int) -> tuple[tuple[int, int], ...]:
        """Give the limits, of stores by position, that have no room for what operators add or remove."""
        if self.has_windows:
            return self._shut_windows(ops, now_us)
        costs: Counter[tuple[int, int]] = Counter()
        for op in ops:
            for store, which, cost in self._costs(op):
                costs[store, which] += cost
        at_s = now_us / SECOND_US
        return tuple(
            (i, w) for (i, w), cost in costs.items() if cost and not available(self.nodes.all[i].limits[w], at_s, cost)
        )

    def _shut_windows(self, ops: Sequence[Operator], now_us: int) -> tuple[tuple[int, int], ...]:
        """Give the stores that are to send snapshots; when an operator ends there may be room again."""
        found = dict.fromkeys(self._sends(op)[0] for op in ops if self._sends(op)[1])
        priority = max((op.priority for op in ops), default=Priority.LOW)
        shut = tuple((i, SEND) for i in found if not window_open(self.nodes.all[i].windows, priority))
        self.nodes.reopen(now_us)
        self.nodes.closed |= dict.fromkeys(shut, (now_us + _SOON_US) / SECOND_US)
        return shut

    def _sends(self, op: Operator) -> tuple[int, float]:
        """Give the store whose leader sends the snapshots of an operator, and their MiB."""
        n = sum(isinstance(step, AddLearner) and not step.witness for step in op.steps)
        return int(self.regions.leader[self.regions.row_of[op.region]]), n * op.size

    def _costs(self, op: Operator) -> list[tuple[int, int, int]]:
        found = []
        for step in op.steps:
            if isinstance(step, AddLearner):
                found.append((self.regions.at[step.store], ADD, step_cost(op.size)))
            elif isinstance(step, RemovePeer):
                i = self.regions.at[step.store]
                lost = not self.nodes.all[i].runs and self.config().removals_of_down_are_small
                found.append((i, REMOVE, step_cost(min(op.size, _SMALL_MIB) if lost else op.size)))
        return found

    def add(self, made: Sequence[OperatorLife], now_us: int, tick: int) -> int:
        """Admit operators that were just made, the two of a merge together; give how many started."""
        started = 0
        groups: list[list[OperatorLife]] = []
        for r in made:
            if merges(r.op) and groups and len(groups[-1]) == 1 and merges(groups[-1][0].op):
                groups[-1].append(r)
            else:
                groups.append([r])
        waiting: Counter[str] = Counter()
        for group in groups:
            desc = group[0].op.desc
            waiting[desc] += 1
            full = waiting[desc] > self.nodes.settings.max_waiting
            why = FULL if full else self._refusal(group, now_us)
            for r in group:
                if why:
                    before = r.status
                    r.become(EXPIRED if why == OLD else CANCELED, now_us, why)
                    self.on_change(r, before)
                elif self._start(r, now_us, tick):
                    started += 1
        return started

    def _refusal(self, group: Sequence[OperatorLife], now_us: int) -> str:
        for r in group:
            if not self.regions.alive[r.row]:
                return GONE
            same = int(self.regions.conf[r.row]) == r.conf and int(self.regions.version[r.row]) == r.version
            if not same or r.row in self.unheard:
                return EPOCH
            old = self.running.get(r.row)
            if old is not None and r.op.priority <= old.op.priority:
                return ALREADY
            if status_at(r.op, CREATED, (now_us - r.created_us) / SECOND_US) == EXPIRED:
                return OLD
        urgent = all(r.op.kind & Kind.ADMIN for r in group)
        return LIMIT if not urgent and self.full_limits([r.op for r in group], now_us) else ""

    def _start(self, r: OperatorLife, now_us: int, tick: int) -> bool:
        old = self.running.get(r.row)
        if old is not None:
            self.end(old, REPLACED, now_us, f"by {r.op.desc}, which is more urgent")
        self.running[r.row] = r
        r.counted = counted_as(r.op.kind, self.config())
        self.counts.update(r.counted)
        region = self.regions.region(r.row)
        r.effects = tuple(effects_on_stores(step, region) for step in r.op.steps)
        for effects in r.effects:
            self.unfinished.add(effects, 1)
        self._take_limits(r, now_us)
        before = r.status
        r.become(STARTED, now_us)
        r.started_us = now_us
        heapq.heappush(self.pushes, (now_us + told_again_after_us(r.op.steps[0]), r.number, r.row))
        self.created[r.op.desc] += 1
        self.on_change(r, before)
        self._tell(r, tick)
        return True

    def _take_limits(self, r: OperatorLife, now_us: int) -> None:
        if self.has_windows:
            sender, mib = self._sends(r.op)
            if mib and window_open(self.nodes.all[sender].windows, r.op.priority):
                self.nodes.take_window(sender, r.op.priority, mib)
                r.sends = sender, mib
            return
        urgent, at_s = r.op.kind & Kind.ADMIN, now_us / SECOND_US
        for i, which, cost in self._costs(r.op):
            if not urgent or available(self.nodes.all[i].limits[which], at_s, cost):
                self.nodes.take_tokens(i, which, cost, now_us)

    def _tell(self, r: OperatorLife, tick: int) -> None:
        if r.step is not None:
            self.tasks.tell(r.row, r.step, tick)

    def reported(self, row: int, cluster: Cluster, now_us: int, tick: int) -> bool:
        """Take a heartbeat of a region that changed: advance its operator, if it has one."""
        r = self.running.get(row)
        if r is None:
            return False
        region = self.regions.region(row)
        while r.step is not None and is_done(r.step, region):
            self.unfinished.add(r.effects[r.at_step], -1)
            r.at_step += 1
        r.conf_done = conf_changes(r, region)
        if r.step is None:
            self.end(r, SUCCESS, now_us)
            if now_us - r.started_us < self.fast.for_us:
                self.fast.push(r.op.region, tuple(e for step in r.effects for e in step), now_us)
            return True
        why = impossible(cluster, region, r.step)
        if int(self.regions.conf[row]) - r.conf > r.conf_done:
            why = EPOCH
        if why:
            self.end(r, CANCELED, now_us, why)
            return True
        self._tell(r, tick)
        return True

    def forget(self, now_us: int) -> None:
        """Let another PD lead: operators were in the memory of the one before."""
        for r in list(self.running.values()):
            self.end(r, CANCELED, now_us, FORGOTTEN)
        self.pushes.clear()
        self.fast = Fast(self.fast.for_us)
        self.influences.clear()

    def end(self, r: OperatorLife, status: str, now_us: int, because: str = "") -> None:
        """End a running operator; the other one of a merge ends with it."""
        if self.running.get(r.row) is not r:
            return
        del self.running[r.row]
        self.counts.subtract(r.counted)
        for effects in r.effects[r.at_step :]:
            self.unfinished.add(effects, -1)
        if r.sends is not None:
            i, mib = r.sends
            self.nodes.all[i].windows = without_snapshot(self.nodes.all[i].windows, mib)
        before = r.status
        r.become(status, now_us, because)
        self.ended.append(finished_of(r, now_us))
        self.on_change(r, before)
        self.on_end(r)
        merge = merges(r.op)
        if merge is not None:
            other = merge.source if merge.passive else merge.target
            found = next((x for x in self.running.values() if x.op.region == other), None)
            if found is not None and merges(found.op) is not None:
                self.end(found, CANCELED, now_us, "the other region of the merge went its own way")

    def watch(self, cluster: Cluster, now_us: int, tick: int) -> None:
        """Push steps again, earliest first, and end operators that take too long or became impossible.

        PD looks at the first of its queue even if its time has not come, and ends it if its region is gone or was
        merged or cut. It stops at the first one that has to wait.
        """
        while self.pushes:
            due_us, number, row = self.pushes[0]
            r = self.running.get(row)
            why = "" if r is None else self._changed(r)
            if r is None or why:
                heapq.heappop(self.pushes)
                if r is not None:
                    self.end(r, CANCELED, now_us, why)
                continue
            if now_us < due_us:
                return
            assert r.step is not None
            heapq.heapreplace(self.pushes, (now_us + told_again_after_us(r.step), number, row))
            why = impossible(cluster, self.regions.region(row), r.step)
            if status_at(r.op, STARTED, (now_us - r.started_us) / SECOND_US) == TIMEOUT:
                self.end(r, TIMEOUT, now_us, f"it ran for {timeout_s(r.op):.0f} s")
            elif why:
                self.end(r, CANCELED, now_us, why)
            else:
                self._tell(r, tick)

    def next_push_us(self) -> int:
        """Give when :meth:`watch` next has anything to do, 0 where it has now."""
        if not self.pushes:
            return NEVER_US
        due_us, _, row = self.pushes[0]
        r = self.running.get(row)
        return 0 if r is None or self._changed(r) else due_us

    def _changed(self, r: OperatorLife) -> str:
        """Give how a region changed so that its operator is in vain, "" if it did not."""
        if not self.regions.alive[r.row]:
            return GONE
        return EPOCH if merges(r.op) is not None and int(self.regions.version[r.row]) > r.version else ""
