"""The loop: PD and its stores, tick by tick, from one source of chance; where nothing can happen time is skipped.

Not the house kernel (:mod:`ticdc_lab.simulate.kernel`): that sends every heartbeat of every region as a message of its
own, some ten thousand a simulated second for the clusters that this one is for. Here a heartbeat that reports nothing
new is no event at all, those that do are taken a tick at a time, and regions are columns. What the kernel promises
holds here too: virtual time, one seed, the same trace from the same start.

A tick: events that are due, heartbeats of what the last tick changed (PD answers with the next steps), the stores'
work, PD's rounds and its patrol until the next tick. So a step takes two ticks, as in the reference runs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ticdc_lab.pd_core.balance import DRAWN, FOLLOWER_HERE, LEADER_HERE, LEARNER_HERE, PENDING_HERE
from ticdc_lab.pd_core.cluster import Cluster
from ticdc_lab.pd_core.explained import Explained
from ticdc_lab.pd_core.hot_loads import READ, WRITE
from ticdc_lab.pd_core.lifecycle import CANCELED, SUCCESS
from ticdc_lab.pd_core.limits import window_open
from ticdc_lab.pd_core.operators import AddLearner, Kind, Operator, Priority, RemovePeer, SplitRegion, TransferLeader
from ticdc_lab.pd_core.regions import KeyRanges, Region, keys_lie_in
from ticdc_lab.pd_core.rules import RegionFit, Rule, default_rules
from ticdc_lab.pd_core.store_states import may_serve
from ticdc_lab.pd_core.stores import MIB, PREPARING, REMOVED, REMOVING, SERVING
from ticdc_lab.simulate.pd.world.columns import FOLLOWS, LEADS, LEARNS, NONE, AllRegions
from ticdc_lab.simulate.pd.world.controller import GONE, Controller
from ticdc_lab.simulate.pd.world.heartbeats import CHANGED, Heartbeats, any_silent, has_heard_enough, report_down
from ticdc_lab.simulate.pd.world.hot_stats import HotStats
from ticdc_lab.simulate.pd.world.patrol import Patrol, Waits
from ticdc_lab.simulate.pd.world.pd_policies import DEFAULT_POLICIES
from ticdc_lab.simulate.pd.world.policy import Policy, Scheduler, SeenCluster, limit_reached, play_round, scheduler_of
from ticdc_lab.simulate.pd.world.running import CHECKER, OperatorLife, ends_of, merges
from ticdc_lab.simulate.pd.world.start import NEVER_US, SECOND_US, Start
from ticdc_lab.simulate.pd.world.stores import SEND, SLOW, Nodes
from ticdc_lab.simulate.pd.world.tasks import Report, Tasks

if TYPE_CHECKING:
    from ticdc_lab.simulate.pd.world.changes import AppliedChange, ClusterChange, Timed
    from ticdc_lab.simulate.pd.world.monitor import PdMonitor
    from ticdc_lab.simulate.pd.world.recording import PdRecorder

_KINDS = {LEADER_HERE: LEADS, FOLLOWER_HERE: FOLLOWS, LEARNER_HERE: LEARNS}
_MOST_A_SLICE = 8192
_PUSH_US = 500_000
_GUESSES = 1 << 10
_MOST_FITS = 1 << 17


class World:
    """A cluster in the middle of a run."""

    def __init__(
        self, start: Start, seed: int, policies: Sequence[Policy] = DEFAULT_POLICIES, changes: Sequence[Timed] = ()
    ) -> None:
        self.start, self.settings, self.config = start, start.settings, start.config
        self.rules: tuple[Rule, ...] | None = start.rules or None
        self.chance = Random(seed)
        self.regions = AllRegions(start.regions, [s.id for s in start.stores], start.labels)
        self.nodes = Nodes(start.stores, self.regions, self.settings, seed)
        self.tasks = Tasks(self.regions, self.nodes)
        self.controller = Controller(self.regions, self.nodes, self.tasks)
        self.patrol = Patrol(self.regions)
        begin_us = self.settings.start_us
        self.schedulers: dict[str, Scheduler] = {p.name: scheduler_of(p, begin_us, self.settings) for p in policies}
        self.changes = deque(sorted((one for c in changes for one in c.with_end()), key=lambda c: c.at_us))
        self.happened: list[AppliedChange] = []
        self.heartbeats = Heartbeats(self)
        self.demand_us: int | None = 0 if self.regions.read.any() or self.regions.write.any() else None
        self.growing: dict[int, tuple[float, int]] = {}
        self.checked_mib, self.checked_count = -1.0, -1
        self.tick = self.ticks = 0
        self.played, self.woken = -1, True  # the latest tick; whether something came from outside since
        self.next_id = self.settings.first_id
        self.now_us = 0
        self.hot_stats = HotStats(self)
        self.controller.on_end = self._ended
        self.controller.config = lambda: self.config
        self.controller.on_change = self._operator_changed
        self.recorder: PdRecorder | None = None
        self.monitor: PdMonitor | None = None
        self.reports: list[Report] = []
        self.changed: dict[int, list[int]] = {}  # rows that each simulated store, by position, has to report
        self.last_change_us = 0
        self.inside: dict[KeyRanges, tuple[tuple[int, ...], Collection[int]]] = {}  # rows that lie in key ranges
        self.leads_since_us: int | None = None  # while a new leader of PD learns where regions are
        self.decides_from_us = self.settings.start_us
        # how regions fit rules, and what that depends on: ids, labels and silence of stores, rules, settings
        self.fitted: tuple[Any, Any, dict[tuple[object, ...], RegionFit], Any, Any] = (None, None, {}, None, None)
        self.watch_us = 0
        self.was_halted = False
        self.states_us = 0
        self.heartbeat_us = self.settings.store_heartbeat_us

    def _operator_changed(self, running: OperatorLife, before: str) -> None:
        for one in (self.recorder, self.monitor):
            if one is not None:
                one.operator_changed(running, before)

    # What PD knows

    def cluster(self, *, fast_too: bool = True) -> Cluster:
        """Give what PD knows now, with the influence of running operators."""
        m, r = self.regions.members, self.regions
        stores = self.nodes.view(self.now_us)
        average = int(r.total_mib // r.count) if r.count else 0
        influence = self.controller.influence(fast_too=fast_too)
        fullest = {0: max(m.count, default=0)}
        rules = self.rules or default_rules(self.config)
        if self.fitted[0] is not stores:
            down_s = self.config.max_store_down_time_s
            about = [(s.id, s.labels, s.heartbeat_age_s > down_s, s.witness_count) for s in stores.values()]
            same = self.fitted[1] == about and len(self.fitted[2]) < _MOST_FITS
            self.fitted = stores, about, self.fitted[2] if same else {}, *self.fitted[3:]
        if self.fitted[3:] != (rules, self.config):
            self.fitted = *self.fitted[:2], {}, rules, self.config
        return Cluster(self.config, stores, rules, influence, fullest, r.count, average, self.fitted[2])

    def seen(self, s: Scheduler) -> SeenCluster:
        fast_too = s.policy.limited_as == Kind.REGION
        draw = self.draw_sent if fast_too and self.controller.has_windows else self.draw
        return SeenCluster(
            self.cluster(fast_too=fast_too), partial(draw, ranges=s.policy.ranges), self.controller.counts,
            self.chance, s.memory, self.now_us, self.region, self.hot_stats.hot, self.followers_of,
            self.busy_followers_of,
        )  # fmt: skip

    def region(self, region_id: int) -> Region | None:
        row = self.regions.row_of.get(region_id)
        return None if row is None else self.regions.region(row)

    def draw(self, store: int, kind: str, ranges: KeyRanges = ()) -> Iterator[Region]:
        """Draw up to ten regions whose peer on a store is of a kind, of some key ranges or all."""
        i, m = self.regions.at[store], self.regions.members
        if kind == PENDING_HERE:
            if not m.pending[i]:
                return
            rows = [row for row in m.pending_rows if store in self.regions.region(row).pending]
        else:
            rows = m.lists[i][_KINDS[kind]]
        if ranges:
            rows = self._within(rows, ranges)
        for _ in range(DRAWN if rows else 0):
            yield self.regions.region(self.chance.choice(rows))

    def _within(self, rows: Sequence[int], ranges: KeyRanges) -> list[int]:
        """Some of these that lie in key ranges, by chance, more than are drawn: mostly a few have to be looked at."""
        found: list[int] = []
        for _ in range(_GUESSES if len(rows) > _GUESSES else 0):
            row = self.chance.choice(rows)
            found += [row] if keys_lie_in(*self.regions.range_of(row), ranges) else []
            if len(found) == 8 * DRAWN:
                return found
        r = self.regions
        borders = r.n, r.count  # every split adds a row, every merge takes a region away
        if self.inside.get(ranges, ((), ()))[0] != borders:
            self.inside[ranges] = borders, frozenset(i for i in range(r.n) if keys_lie_in(*r.range_of(i), ranges))
        inside = self.inside[ranges][1]
        return [row for row in rows if row in inside]

    def draw_sent(self, store: int, kind: str, ranges: KeyRanges = ()) -> Iterator[Region]:
        """Draw the ones whose leader's store may send a snapshot now (store limit v2)."""
        for region in self.draw(store, kind, ranges):
            sender = self.regions.at.get(region.leader)
            if sender is not None and window_open(self.nodes.all[sender].windows, Priority.MEDIUM):
                yield region

    def followers_of(self, stores: Sequence[int]) -> NDArray[np.int32]:
        """Count regions by who leads and who follows."""
        places = np.array([self.regions.at[s] for s in stores], np.int64)
        return self.regions.members.led_with[np.ix_(places, places)]

    def busy_followers_of(self, stores: Sequence[int]) -> NDArray[np.int32]:
        """Count regions with an operator by who leads and who follows."""
        place = {self.regions.at[s]: i for i, s in enumerate(stores)}
        found = np.zeros((len(stores), len(stores)), np.int32)
        for row in self.controller.running:
            leader = place.get(int(self.regions.leader[row]))
            if leader is None:
                continue
            for s in self.regions.store[row].tolist():
                if s >= 0 and s in place and place[s] != leader:
                    found[leader, place[s]] += 1
        return found

    # The loop

    def run(self, until_us: int) -> None:
        """Run until a moment. In how many parts a run is made changes nothing: no tick is played that is not due."""
        end = -(-until_us // self.settings.tick_us)
        while (due := self.tick if self.woken else max(self.played + 1, self.next_tick())) < end:
            self.tick = due
            self.play_tick()
            if self.recorder is not None:
                self.recorder.ticked()
            self.played, self.woken = due, False
        self.tick, self.now_us = end, until_us

    def play_tick(self) -> None:
        self.ticks += 1
        self.now_us = self.tick * self.settings.tick_us
        if self.now_us >= self.heartbeat_us:
            self.nodes.heartbeats(self.now_us)
            self.heartbeat_us += self.settings.store_heartbeat_us
            if any(n.disk.score >= SLOW for n in self.nodes.all):  # schedulers that are about slow stores begin
                for s in self.schedulers.values():
                    if s.policy.sleeps and s.due_us == NEVER_US:
                        s.due_us = self.now_us
        self.take_reports()
        if self.monitor is not None:
            self.monitor.space()
        self.heartbeats.take()
        while self.changes and self.changes[0].at_us <= self.now_us:
            self.happen(self.changes.popleft().change)
        if self.demand_us is not None and self.demand_us <= self.now_us:
            # clients ask the disks for what they read and write now
            self.demand_us = self.now_us + SECOND_US
            read, written = (self.hot_stats.carried(kind).tolist() for kind in (READ, WRITE))
            a_tick = self.settings.tick_us / SECOND_US / MIB
            for node, reads, writes in zip(self.nodes.all, read, written, strict=True):
                node.disk.want(reads * a_tick, writes * a_tick, self.tick, self.settings)
        self.nodes.compact(self.tick)
        self.reports = self.tasks.tick(self.tick)
        if self.reports:
            self.last_change_us = self.now_us
        if self.settings.simulated_stores:
            self.report_in_turn()
        self.grow()
        self.hot_stats.tick(self.now_us)
        if self.leads_since_us is not None and has_heard_enough(self, self.leads_since_us):
            self.leads_since_us, self.decides_from_us = None, max(self.now_us, self.settings.start_us)
        if self.leads_since_us is not None:
            report_down(self)
        elif self.now_us >= self.decides_from_us:
            self.decide()

    def fail_over(self) -> None:
        """Let another PD lead: it knows what was written down, learns the rest by heartbeats, and then schedules."""
        self.leads_since_us = self.now_us
        self.heartbeats.forget()
        self.controller.forget(self.now_us)
        self.nodes.forget(self.now_us)
        self.patrol.forget(self.now_us)
        self.hot_stats.forget()
        for s in self.schedulers.values():
            fresh = scheduler_of(s.policy, self.now_us, self.settings)
            kept = s.memory if s.policy.sleeps else {}  # which store gives its leaders is written down
            s.memory, s.interval_us, s.paused_until_us = kept, fresh.interval_us, 0
            s.due_us = self.now_us + fresh.interval_us if kept else fresh.due_us

    def happen(self, change: ClusterChange) -> AppliedChange:
        """Let something happen now."""
        happened = change.happen(self)
        self.happened.append(happened)
        if self.recorder is not None:
            self.recorder.happened(happened)
        self.last_change_us, self.woken = self.now_us, True
        return happened

    def grow(self) -> None:
        """Let what grows grow by a tick, and cut what is too large."""
        r = self.regions
        for region, (mib, until_us) in list(self.growing.items()):
            row = r.row_of.get(region)
            if self.now_us >= until_us or not mib or row is None:
                del self.growing[region]
                continue
            r.grow(row, mib)
            region_now = r.region(row)
            for store in region_now.stores - region_now.pending:
                self.nodes.use(r.at[store], mib)
        if not self.settings.simulated_stores:
            self.cut()

    def cut(self) -> None:
        """Cut regions in half that are as large as TiKV lets them be; it asks PD for the ids of the new ones."""
        r, s = self.regions, self.settings
        if r.total_mib == self.checked_mib and r.count == self.checked_count:
            return
        large = (r.size[: r.n] >= s.split_mib) | (r.keys[: r.n] >= s.split_keys)
        for row in np.flatnonzero(large & r.alive[: r.n] & (r.leader[: r.n] >= 0)).tolist():
            if self.nodes.all[int(r.leader[row])].in_touch:
                self.split(row)
        self.checked_mib, self.checked_count = r.total_mib, r.count

    def next_tick(self) -> int:
        """Give the next tick in which anything may happen."""
        merging = self.patrol.to_merge and self.controller.counts[Kind.MERGE] < self.config.merge_schedule_limit
        if self.reports or self.tasks.of or self.growing or merging or self.changed:
            return self.played + 1
        dues = [s.due_us for s in self.schedulers.values()]
        dues += [self.heartbeat_us, self.states_us, self.hot_stats.next_us(), self.heartbeats.next_us()]
        if self.changes:
            dues.append(self.changes[0].at_us)
        if any_silent(self) or self.leads_since_us is not None:
            dues.append(self.played * self.settings.tick_us + SECOND_US)
        patrol = self.patrol.next_us()
        if patrol is not None:
            dues.append(patrol)
        if self.controller.running:
            dues.append(max(self.watch_us, self.controller.next_push_us()))
        return min(min(dues) // self.settings.tick_us, self.nodes.next_compaction())

    def take_reports(self) -> None:
        """Take the heartbeats of regions that changed, and advance their operators."""
        reports, self.reports = self.reports, []
        if reports:
            self.nodes.expect_counts(self.now_us)
        for report in reports:
            if self.regions.alive[report.row]:
                self._take(report)
        if self.settings.simulated_stores:
            self.cut()
            return
        if reports:
            self._hear_all([r.row for r in reports])

    def _hear_all(self, rows: Iterable[int]) -> None:
        cluster = self.cluster()
        for row in rows:
            if not self.regions.alive[row]:
                continue
            known = self.controller.running.get(row)
            if self.hear(row, cluster) and (known is None or row not in self.controller.running):
                self.mark(row)

    def report_in_turn(self) -> None:
        """Let PD's simulated stores report what changed, one after the other, each before it acts (StepRegions).

        So a leader or a merge that comes to a store which is still to report is reported in the same tick.
        """
        done: dict[int, list[Report]] = {}
        for report in self.reports:
            done.setdefault(report.by, []).append(report)
        self.reports = []
        if not done and not self.changed:
            return
        self.nodes.expect_counts(self.now_us)
        to_come = self.chance.sample(range(len(self.nodes.all)), len(self.nodes.all))
        while to_come:
            turn = to_come.pop()
            if rows := self.changed.pop(turn, []):
                self._hear_all(rows)
            for report in done.get(turn, ()):
                if self.regions.alive[report.row] and self._reporter(report) in to_come:
                    self._take(report)
                else:
                    self.reports.append(report)

    def _reporter(self, report: Report) -> int:
        """Give the store, by position, whose leader will report a change."""
        if report.merged_into >= 0:
            return int(self.regions.leader[report.merged_into])
        led_by = report.region.leader if report.region is not None else 0
        return self.regions.at.get(led_by, -1)

    def _changed(self, row: int) -> None:
        """Put a region on the list of the simulated store that is to report it."""
        if self.settings.simulated_stores and self.regions.leader[row] >= 0:
            self.changed.setdefault(int(self.regions.leader[row]), []).append(row)
            self.controller.unheard.add(row)

    def hear(self, row: int, cluster: Cluster) -> bool:
        """Let PD take the heartbeat of a region that changed, where it comes; else the next one reports it."""
        leader = int(self.regions.leader[row])
        if leader >= 0 and not self.nodes.hears(leader):
            self.controller.unheard.add(row)
            self.heartbeats.expect(CHANGED, leader, int(self.regions.id[row]))
            return False
        self.controller.unheard.discard(row)
        if self.leads_since_us is not None:
            self.heartbeats.came([row])
        if self.settings.simulated_stores:
            self._sees_merge(row)
        self.controller.reported(row, cluster, self.now_us, self.tick)
        return True

    def _sees_merge(self, row: int) -> None:
        """Let PD see by a region's key range that another one was merged into it."""
        running = self.controller.running.get(row)
        merge = merges(running.op) if running is not None else None
        if running is not None and merge is not None and merge.passive and self.regions.range_of(row) != running.keys:
            self.controller.end(running, SUCCESS, self.now_us)

    def _take(self, report: Report) -> None:
        if report.region is not None:
            before = self.regions.region(report.row)
            # it may have grown or been cut since its leader reported
            after = report.region._replace(size=before.size, keys=before.keys)
            self.regions.put(report.row, after, report.conf)
            self._changed(report.row)
            self.nodes.follow(before, after)
            self.heartbeats.changed(report.row)
            if self.monitor is not None:
                self.monitor.region_changed(report.row, before, report.region)
        elif report.merged_into >= 0:
            self._merge(report.row, report.merged_into)
        elif report.cut:
            for key in sorted(report.keys) or [b""]:
                self.split(report.row, key.decode())
            running = self.controller.running.get(report.row)
            if running is not None and isinstance(running.step, SplitRegion):
                self.controller.end(running, SUCCESS, self.now_us)

    def _merge(self, source: int, target: int) -> None:
        """Merge two regions.

        PD sees that it is done by the key range of the one that stays. Where that is cut at once to the range that it
        had, PD sees nothing, and gives the two operators up when it would resend them. Meanwhile one of them
        may have been absorbed or cut. TiKV then merges nothing, as they are no siblings any more. PD's simulated stores
        give the target all keys up to it: regions between are lost.
        """
        r = self.regions
        if not (r.alive[source] and r.alive[target]):
            return
        if target not in r.beside(source):
            if not self.settings.simulated_stores:
                return
            self._lose(source, target)
        gone = self.regions.region(source)
        self.regions.merge(source, target)
        self.nodes.merged(gone, self.regions.region(target))
        if self.settings.simulated_stores:
            self._changed(target)
        else:
            self.cut()
            self._sees_merge(target)
        self.patrol.merged(source, target)
        self.mark(target)

    def _lose(self, source: int, target: int) -> None:
        """Give a region the keys between it and another one; its own version and data do not change by it."""
        r = self.regions
        known, toward, row = (r.conf[target], r.version[target]), r.before, int(r.after[source])
        while row not in (target, NONE):
            row = int(r.after[row])
        if row == NONE:
            toward = r.after
        while (lost := int(toward[target])) != source:
            gone = r.region(lost)
            r.grow(lost, -gone.size)
            r.merge(lost, target)
            for store in gone.stores - gone.pending:
                self.nodes.removed(r.at[store], gone.id, gone.size)
            self.patrol.merged(lost, target)
        r.conf[target], r.version[target] = known

    def split(self, row: int, key: str = "") -> int:
        """Cut a region at a key, or in half; its operator, if any, is not disturbed."""
        new = self.regions.split(row, key, simulated=self.settings.simulated_stores)
        for store in self.regions.region(row).pending - self.regions.region(new).pending:
            self.nodes.use(self.regions.at[store], float(self.regions.size[new]))
        self.tasks.split(row, new, self.tick)
        self.heartbeats.split(row, new)
        self._changed(new)
        self._changed(row)
        for part in (row, new):
            self.patrol.split_us[part] = self.now_us
            self.mark(part)
        if self.settings.simulated_stores and int(self.regions.id[row]) in self.growing:  # clients write at one key
            self.growing[int(self.regions.id[new])] = self.growing.pop(int(self.regions.id[row]))
        if self.next_id:
            self._take_id(new)
        return new

    def _take_id(self, new: int) -> None:
        """Let a new region have the id that PD gives it. If another region has this id, that region is lost.

        PD's simulator counts the ids of its case itself, and PD begins with 1 (IDAllocator of its packages simutil
        and cases, allocID of drive.go). The id of a region follows the ids of its peers, in the case and in a split.
        """
        ids = 1 + len(self.regions.region(new).peers)
        self.next_id += ids
        row, rest = divmod(self.next_id - 1, ids)
        old = row - 1
        if rest or old >= len(self.start.regions.id) or not self.regions.alive[old]:
            return
        gone = self.regions.region(old)
        self.regions.lose(old)
        for store in gone.stores - gone.pending:
            self.nodes.removed(self.regions.at[store], gone.id, gone.size)
        self.patrol.merged(old, int(self.regions.after[old]))
        if running := self.controller.running.get(old):
            self.controller.end(running, CANCELED, self.now_us, GONE)

    # What PD decides

    @property
    def patrol_us(self) -> int:
        """How often the checkers advance."""
        return max(1000, round(self.config.patrol_region_interval_s * SECOND_US))

    def decide(self) -> None:
        """Play all rounds until the next tick, the patrol, and the checks that come by the clock."""
        end_us = (self.tick + 1) * self.settings.tick_us
        if self.now_us >= self.states_us:
            # stores that have left are empty, and those that joined have their share
            self.states_us = self.now_us + self.settings.states_us
            for i, node in enumerate(self.nodes.all):
                if node.told.state == REMOVING and not self.regions.members.count[i]:
                    self.nodes.change(i, state=REMOVED)
                elif node.told.state == PREPARING and node.known:
                    up_s, cluster = (self.now_us - node.joined_us) / SECOND_US, self.cluster()
                    if may_serve(cluster, cluster.stores[node.told.id], self.regions.mib_between, up_s=up_s):
                        self.nodes.change(i, state=SERVING)
        self.controller.fast.expire(self.now_us)
        report_down(self)
        halted = self.config.halt_scheduling
        if self.was_halted and not halted:  # PD's tickers ran meanwhile, at the interval that each scheduler had
            for on in (on for on in self.schedulers.values() if on.due_us < NEVER_US):
                on.due_us = min(on.due_us, self.now_us + self.chance.randint(1, on.interval_us))
        self.was_halted = halted
        if not halted:
            self.look_around(end_us)
        while True:
            s = self._next_round()
            reopens_us = NEVER_US if halted else self._reopens_us()
            if reopens_us < (end_us if s is None else min(end_us, s.due_us)):
                self.now_us = reopens_us
                self.controller.fast.expire(self.now_us)
                self._look_at_waiting(end_us if s is None else min(end_us, s.due_us))
                continue
            if s is None or s.due_us >= end_us:
                break
            self.now_us = max(self.now_us, s.due_us)
            self.controller.fast.expire(self.now_us)
            self._round(s)
        if self.controller.running and self.now_us >= self.watch_us:
            self.watch_us = (self.now_us // _PUSH_US + 1) * _PUSH_US
            self.controller.watch(self.cluster(), self.now_us, self.tick)

    def _next_round(self) -> Scheduler | None:
        return min(self.schedulers.values(), key=lambda s: s.due_us, default=None)

    def _note(self, who: str, told: Explained) -> None:
        if self.recorder is not None:
            self.recorder.decided(who, told)

    def _round(self, s: Scheduler) -> None:
        answer = play_round(s, self.seen(s), self.now_us, self.settings, self.recorder)
        self._note(s.policy.name, answer.told)
        for store, evicted in answer.evicted:
            self.nodes.change(self.regions.at[store], evicted=evicted)
        if s.policy.sleeps and not s.memory:
            s.due_us = NEVER_US
        self.add(answer.operators, answer.told.because, s.policy.name)
        for op in answer.operators if s.policy.hot else ():
            if self.controller.running.get(self.regions.row_of[op.region]) is not None:
                self.hot_stats.started(op, READ if "read" in op.desc else WRITE, *ends_of(op))

    def _ended(self, running: OperatorLife) -> None:
        self.hot_stats.ended(running.op.region, running.status == SUCCESS)
        if self.regions.alive[running.row]:
            self.mark(running.row)

    def mark(self, row: int) -> None:
        """Let the patrol look at a region that changed, and at those beside it that may merge now."""
        self.patrol.mark(row)
        self.patrol.mark_beside(row, self.config)

    def add(self, operators: Iterable[Operator], because: str, source: str) -> int:
        """Hand operators over; give how many started."""
        made = [self.controller.made(op, self.now_us, because, source) for op in operators]
        if self.next_id:
            self.next_id += sum(isinstance(step, AddLearner) for m in made for step in m.op.steps)
        return self.controller.add(made, self.now_us, self.tick) if made else 0

    def look_around(self, end_us: int) -> None:
        """Let the checkers look at the regions that may need something.

        Each look takes its time of the tick, and rounds of schedulers come between.
        """
        self.patrol.notice(self.cluster())
        self.patrol.come_back(self.now_us)
        tick_us, every_us = self.settings.tick_us, self.patrol_us
        a_slice = min(max(self.settings.patrol_regions, self.regions.count // 1024), _MOST_A_SLICE)
        checks = a_slice * ((self.tick + 1) * tick_us // every_us - self.tick * tick_us // every_us)
        for row in self.patrol.order(self.chance, self.now_us):
            if not self.patrol.todo or checks <= 0:
                break
            if self.patrol.todo.get(row, 1 << 62) > self.now_us:
                continue
            if not self.regions.alive[row] or row in self.controller.running:
                del self.patrol.todo[row]
                continue
            if row in self.patrol.waiting:
                if not self.patrol.still_waits(row, self.nodes.closed, self.now_us):
                    self.nodes.opened_us = min(self.nodes.opened_us, self.now_us)
                continue
            if limit_reached(Kind.REPLICA, self.controller.counts[Kind.REPLICA], self.config):
                self.patrol.crowded = True
                break
            checks -= 1
            self.now_us += self.settings.check_us
            if self.now_us >= end_us:
                self.now_us = end_us - 1
                break
            while (s := self._next_round()) is not None and s.due_us <= self.now_us:
                self._round(s)
            if row in self.patrol.todo and row not in self.controller.running:
                self._look(row, self.cluster())
        if self.patrol.to_merge:
            self._look_at_merges((self.tick + 1) * tick_us, a_slice)

    def _reopens_us(self) -> int:
        """Give when the patrol next finds that a store limit has room for a region that waits.

        It walks these regions every ``patrol-region-interval``, and a look at each takes ``check_us``: while it walks
        it finds the room at once, else when its next walk begins.
        """
        waiting = len(self.patrol.waiting)
        if not waiting:
            return NEVER_US
        walk_us = waiting * self.settings.check_us
        every_us = max(self.patrol_us, walk_us)
        opens_us = min(self.nodes.opened_us, self._opens_us())
        begins_us = -(-opens_us // every_us) * every_us
        return max(self.now_us, opens_us if opens_us % every_us < walk_us else begins_us)

    def _look_at_waiting(self, until_us: int) -> None:
        """Let the patrol walk the regions that wait for a store limit, in no order, until none finds room.

        PD keeps them in a map, and a walk begins anywhere in it. A limit that opens meanwhile is open for the regions
        that come next: so stores whose limits opened together do not stay together.
        """
        check_us, rows, seen = self.settings.check_us, list(self.patrol.waiting), 0
        cluster, opens_us = self.cluster(), self._opens_us()
        self.nodes.opened_us = NEVER_US
        while seen < len(rows):
            if opens_us <= self.now_us:
                cluster, opens_us, seen = self.cluster(), self._opens_us(), 0
                self.nodes.opened_us = NEVER_US
            if self.now_us + check_us >= until_us:
                self.now_us = self.nodes.opened_us = until_us
                return
            i = self.chance.randrange(seen, len(rows))
            rows[seen], rows[i] = rows[i], rows[seen]
            row, seen = rows[seen], seen + 1
            self.now_us += check_us
            waits = self.patrol.waiting.get(row)
            if waits is None or row not in self.patrol.todo or waits.until_s(self.nodes.closed) is not None:
                continue
            if not self.regions.alive[row] or row in self.controller.running:
                continue
            if limit_reached(Kind.REPLICA, self.controller.counts[Kind.REPLICA], self.config):
                return
            self._look(row, cluster)
            cluster, opens_us = self.cluster(), self._opens_us()

    def _opens_us(self) -> int:
        """Give when the next store limit has room."""
        return min((int(s * SECOND_US + 1) for (_, w), s in self.nodes.closed.items() if w != SEND), default=NEVER_US)

    def _look_at_merges(self, until_us: int, a_slice: int) -> None:
        """Let the patrol find regions to merge from where it is: in the midst of a slice, or before the next one.

        What a tick's reports made room for goes to the regions that the patrol meets then, so that merges spread.
        """
        passed = self.chance.randrange(self.patrol_us) // self.settings.check_us
        for row in self.patrol.scan(until_us, self.patrol_us, a_slice, passed if passed < a_slice else 0):
            counts = self.controller.counts
            if limit_reached(Kind.MERGE, counts[Kind.MERGE], self.config):
                return
            if row in self.patrol.to_merge and row not in self.controller.running:
                self._checked(row, self.patrol.look_at_merge(row, self.cluster(), self.now_us, counts))

    def _look(self, row: int, cluster: Cluster) -> None:
        self._checked(row, self.patrol.look(row, cluster, self.now_us, self.controller.counts))

    def _checked(self, row: int, told: Explained) -> None:
        """Hand over what the checkers found for a region."""
        if self.recorder is not None:
            self.recorder.looked(int(self.regions.id[row]), told)
        if not told.operators:
            return
        if merges(told.operators[0]) is not None:
            self._note("checkers", told)
            started = self.add(told.operators, told.because, "merge-checker")
            if not started and self.controller.full_limits(told.operators, self.now_us):
                self.patrol.merge_later(row, self.now_us)
            return
        op = self.chance.choice(told.operators)
        full = self.controller.full_limits([op], self.now_us)
        if full:
            self.patrol.later(row, self.now_us, Waits(full, every=True))
            return
        self._note("checkers", told)
        self._count_leader(row, op)
        self.add([op], told.because, CHECKER)

    def _count_leader(self, row: int, op: Operator) -> None:
        """Count who led while a leader was replaced, itself too."""
        leader = self.regions.store_ids[int(self.regions.leader[row])]
        if "replace-rule-" in op.desc and RemovePeer(leader) in op.steps:
            leads = [s.to_store for s in op.steps if isinstance(s, TransferLeader)]
            given = leads[0] if op.desc.endswith("leader-peer") and leads else leader
            self.patrol.leaders_given[given] += 1
