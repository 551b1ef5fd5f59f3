"""Regions as columns, and who has a peer where: what heartbeats of regions changed, and what PD draws regions from.

A row is a region, a slot of it a peer; stores are positions in the list of stores.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from ticdc_lab.pd_core.regions import DEMOTING, INCOMING, LEARNER, NO_LABELS, VOTER, Peer, Region, RegionLabels
from ticdc_lab.simulate.pd.world.start import RegionsStart

LEADS, FOLLOWS, LEARNS = 0, 1, 2
_LEARNER = 1


class Members:
    """Lists of rows a store and kind of peer; ``where`` is a peer's place in its list.

    ``led_with`` counts regions by the store that leads and those that follow. ``count``, ``mib``, ``leaders``,
    ``leader_mib`` and ``pending`` sum up each store's peers; ``touched`` collects stores whose sums changed.
    """

    def __init__(self, stores: int) -> None:
        self.lists: list[tuple[list[int], list[int], list[int]]] = [([], [], []) for _ in range(stores)]
        self.count, self.mib = [0] * stores, [0.0] * stores
        self.leaders, self.leader_mib = [0] * stores, [0.0] * stores
        self.learners = [0] * stores
        self.pending = [0] * stores
        self.pending_rows: dict[int, None] = {}
        self.where: NDArray[np.int32] = np.zeros((0, 0), np.int32)
        self.led_with: NDArray[np.int32] = np.zeros((stores, stores), np.int32)
        self.touched: set[int] = set(range(stores))

    def add_store(self) -> None:
        n = len(self.count)
        self.touched.add(n)
        self.led_with = np.pad(self.led_with, ((0, 1), (0, 1)))
        self.lists.append(([], [], []))
        for sums in (self.count, self.leaders, self.learners, self.pending):
            sums.append(0)
        self.mib.append(0.0)
        self.leader_mib.append(0.0)

    def lengthen(self, rows: int) -> None:
        more = np.zeros((rows - len(self.where), self.where.shape[1]), np.int32)
        self.where = np.concatenate([self.where, more])

    def fill(self, r: AllRegions) -> None:
        self.where = np.zeros(r.store.shape, np.int32)
        row_of, slot_of = np.nonzero(r.store >= 0)
        store = r.store[row_of, slot_of]
        kind = np.where(r.role[row_of, slot_of] == _LEARNER, LEARNS, FOLLOWS)
        kind[r.leader[row_of] == store] = LEADS
        for s in range(len(self.count)):
            for k in (LEADS, FOLLOWS, LEARNS):
                chosen = (store == s) & (kind == k)
                self.lists[s][k].extend(row_of[chosen].tolist())
                self.where[row_of[chosen], slot_of[chosen]] = np.arange(int(chosen.sum()))
        n = len(self.count)
        sizes = r.size[row_of]
        leads = kind == LEADS
        self.count = np.bincount(store, minlength=n).tolist()
        self.mib = np.bincount(store, sizes, minlength=n).tolist()
        self.leaders = np.bincount(store[leads], minlength=n).tolist()
        self.leader_mib = np.bincount(store[leads], sizes[leads], minlength=n).tolist()
        self.learners = np.bincount(store[kind == LEARNS], minlength=n).tolist()
        follows = (kind == FOLLOWS) & (r.leader[row_of] >= 0)
        np.add.at(self.led_with, (r.leader[row_of[follows]], store[follows]), 1)

    def insert(self, r: AllRegions, row: int) -> None:
        if self.where.shape[1] < r.store.shape[1]:
            more = np.zeros((len(self.where), r.store.shape[1] - self.where.shape[1]), np.int32)
            self.where = np.hstack([self.where, more])
        leader, size = r.known_leader(row), float(r.size[row])
        pending = r.pending[row].tolist()
        for slot, (s, role) in enumerate(zip(r.store[row].tolist(), r.role[row].tolist(), strict=True)):
            if s < 0:
                continue
            kind = LEADS if s == leader else LEARNS if role == _LEARNER else FOLLOWS
            rows = self.lists[s][kind]
            self.where[row, slot] = len(rows)
            rows.append(row)
            self._add(s, kind, 1, size)
            if kind == FOLLOWS and leader >= 0:
                self.led_with[leader, s] += 1
            if pending[slot]:
                self.pending[s] += 1
                self.pending_rows[row] = None

    def remove(self, r: AllRegions, row: int) -> None:
        leader, size = r.known_leader(row), float(r.size[row])
        pending = r.pending[row].tolist() if row in self.pending_rows else None
        for slot, (s, role) in enumerate(zip(r.store[row].tolist(), r.role[row].tolist(), strict=True)):
            if s < 0:
                continue
            kind = LEADS if s == leader else LEARNS if role == _LEARNER else FOLLOWS
            self._drop(r, self.lists[s][kind], s, int(self.where[row, slot]))
            self._add(s, kind, -1, -size)
            if kind == FOLLOWS and leader >= 0:
                self.led_with[leader, s] -= 1
            if pending is not None and pending[slot]:
                self.pending[s] -= 1
        self.pending_rows.pop(row, None)

    def _drop(self, r: AllRegions, rows: list[int], store: int, place: int) -> None:
        last = rows.pop()
        if place < len(rows):
            rows[place] = last
            slot = r.store[last].tolist().index(store)
            self.where[last, slot] = place

    def _add(self, s: int, kind: int, one: int, size: float) -> None:
        self.touched.add(s)
        self.count[s] += one
        self.mib[s] += size
        if kind == LEADS:
            self.leaders[s] += one
            self.leader_mib[s] += size
        elif kind == LEARNS:
            self.learners[s] += one


ROLES = (VOTER, LEARNER, INCOMING, DEMOTING)
_CODE = {role: i for i, role in enumerate(ROLES)}
_SLOTS = 8
NONE = -1
_KEY_DIGITS = 12


class AllRegions:
    """All regions; rows are never moved, merged regions' are ``alive`` no more.

    ``told`` are rows as regions, as long as nothing about them changes and no peer is down. ``unnamed`` are rows whose
    leader reports an id that none of their peers has.
    """

    def __init__(self, start: RegionsStart, store_ids: Sequence[int], labels: RegionLabels = NO_LABELS) -> None:
        n = len(start.id)
        self.at = {store: i for i, store in enumerate(store_ids)}
        self.store_ids = list(store_ids)
        self.n = n
        self.id = start.id.astype(np.int64)
        self.row_of = {int(i): row for row, i in enumerate(self.id.tolist())}
        self.size = start.size.astype(np.float64)
        self.keys = start.keys.astype(np.int64)
        self.read = start.read.astype(np.float64)
        self.write = start.write.astype(np.float64)
        self.leader = self._positions(start.leader)
        width = max(_SLOTS, start.peers.shape[1])
        self.store = np.full((n, width), NONE, np.int16)
        self.store[:, : start.peers.shape[1]] = self._positions(start.peers)
        self.role = np.zeros((n, width), np.int8)
        self.role[:, : start.learner.shape[1]][start.learner] = _CODE[LEARNER]
        self.pending = np.zeros((n, width), np.bool_)
        self.peer = np.arange(1, n * width + 1, dtype=np.int64).reshape(n, width)
        self.next_peer = int(n * width + 1)
        self.next_id = int(self.id.max(initial=0)) + 1
        self.holes: set[int] = set()  # rows of lost regions whose keys no region has
        self.conf = np.ones(n, np.int32)
        self.version = np.ones(n, np.int32)
        self.alive = np.ones(n, np.bool_)
        self.hot = np.zeros(n, np.bool_)
        # Of reads and of writes: for how many intervals it was hot, and how many cold ones do no harm yet.
        self.degree, self.absorbed = np.zeros((n, 2), np.int32), np.zeros((n, 2), np.int32)
        self.after = np.arange(1, n + 1, dtype=np.int64)
        self.after[-1:] = NONE
        self.before = np.arange(-1, n - 1, dtype=np.int64)
        self.start_key = list(start.start_key) or keys_of(n)
        self.labels = labels
        self.denied = {i: labels.denied(*self.range_of(self.row_of[i])) for i in labels.unmerged | labels.unscheduled}
        self.unnamed: set[int] = set()
        self.down: dict[int, float] = {}
        self.told: dict[int, Region] = {}
        self.down_rows: dict[int, set[int]] = {}
        self.total_mib = float(self.size.sum())
        self.count = n
        self.members = Members(len(store_ids))
        self.members.fill(self)

    def _positions(self, stores: NDArray[np.int32]) -> NDArray[np.int16]:
        table = np.full(int(max(stores.max(initial=0), max(self.store_ids, default=0))) + 1, NONE, np.int16)
        table[self.store_ids] = range(len(self.store_ids))
        return np.where(stores > 0, table[stores], NONE).astype(np.int16)

    def add_store(self, store: int) -> None:
        self.at[store] = len(self.store_ids)
        self.store_ids.append(store)
        self.members.add_store()

    def region(self, row: int) -> Region:
        """Give a row as a region, as its leader reports it."""
        if self.down:
            return self._region(row)
        found = self.told.get(row)
        if found is None:
            found = self.told[row] = self._region(row)
        return found

    def _region(self, row: int) -> Region:
        ids = self.store_ids
        stores, roles, peers = self.store[row].tolist(), self.role[row].tolist(), self.peer[row].tolist()
        found = tuple(
            Peer(p, ids[s], ROLES[r]) for p, s, r in zip(peers, stores, roles, strict=True) if s >= 0
        )  # fmt: skip
        pending: frozenset[int] = frozenset()
        if row in self.members.pending_rows:
            flags = self.pending[row].tolist()
            pending = frozenset(ids[s] for s, p in zip(stores, flags, strict=True) if s >= 0 and p)
        down, seconds = self._down(row, stores)
        leader = int(self.leader[row])
        return Region(
            int(self.id[row]), found, ids[leader] if leader >= 0 else 0, float(self.size[row]), int(self.keys[row]),
            down, pending, *self.range_of(row), bool(self.hot[row]), seconds,
            self.denied.get(int(self.id[row]), frozenset()),
        )  # fmt: skip

    def known_leader(self, row: int) -> int:
        """Give the store whose leader PD counts: a peer whose id is not the leader's is a follower to it."""
        return NONE if row in self.unnamed else int(self.leader[row])

    def range_of(self, row: int) -> tuple[str, str]:
        """Give a region's first key and the key behind its last."""
        following = int(self.after[row])
        return self.start_key[row], self.start_key[following] if following >= 0 else ""

    def _down(self, row: int, stores: list[int]) -> tuple[frozenset[int], float]:
        """Give the peers that the region's leader reports as down: of a store all regions do, or those in its rows."""
        if not self.down:
            return frozenset(), 0.0
        down = [s for s in stores if s in self.down and row in self.down_rows.get(s, (row,))]
        return frozenset(self.store_ids[s] for s in down), max((self.down[s] for s in down), default=0.0)

    def put(self, row: int, region: Region, conf: int = 0) -> None:
        """Take a region's new peers, leader and size; its configuration changed ``conf`` times."""
        self.told.pop(row, None)
        self.members.remove(self, row)
        self.total_mib += region.size - float(self.size[row])
        self.store[row] = NONE
        self.pending[row] = False
        while len(region.peers) > self.store.shape[1]:

            def wider(a: NDArray, fill: object) -> NDArray:  # type: ignore[type-arg]
                return np.hstack([a, np.full(a.shape, fill, a.dtype)])

            self.store, self.role = wider(self.store, NONE), wider(self.role, 0)
            self.pending, self.peer = wider(self.pending, False), wider(self.peer, 0)
        for slot, p in enumerate(region.peers):
            self.store[row, slot] = self.at[p.store]
            self.role[row, slot] = _CODE[p.role]
            self.peer[row, slot] = p.id or self.new_peer()
            if p.store in region.pending:
                self.pending[row, slot] = True
        leader = self.at[region.leader] if region.leader else NONE
        if self.leader[row] not in (NONE, leader):
            self.unnamed.discard(row)
        self.leader[row] = leader
        self.size[row], self.keys[row] = region.size, region.keys
        self.conf[row] += conf
        self.members.insert(self, row)

    def new_peer(self) -> int:
        self.next_peer += 1
        return self.next_peer - 1

    def grow(self, row: int, mib: float) -> None:
        self.told.pop(row, None)
        leader = self.known_leader(row)
        for s in self.store[row].tolist():
            if s >= 0:
                self.members.mib[s] += mib
                self.members.touched.add(s)
        if leader >= 0:
            self.members.leader_mib[leader] += mib
        self.size[row] += mib
        self.total_mib += mib

    def split(self, row: int, at_key: str = "", *, simulated: bool = False) -> int:
        """Cut a region at a key or in the middle: the new one is left.

        Both parts have half of the data; the row of the new one is given. A peer that waits for its snapshot waits for
        two; on PD's ``simulated`` stores the new part has its data at once. These cut at the last key of the range, and
        the new one's leader keeps its old id.
        """
        region = self.region(row)
        half = region._replace(size=region.size / 2, keys=region.keys // 2)
        self.put(row, half)
        self.version[row] += 1
        new = self._new_row(row)
        key = self.start_key[row]
        self.start_key[row] = at_key or (key_below if simulated else key_between)(key, region.end_key)
        self.start_key[new] = key
        self._link(int(self.before[row]), new)
        self._link(new, row)
        if self.labels.rules:
            self.denied |= {int(self.id[one]): self.labels.denied(*self.range_of(one)) for one in (row, new)}
        self.told.clear()
        if simulated:
            self.unnamed.add(new)
            half = half._replace(pending=frozenset())
        self.put(new, half._replace(peers=tuple(p._replace(id=0) for p in half.peers)))
        self.count += 1
        return new

    def _link(self, one: int, other: int) -> None:
        if one >= 0:
            self.after[one] = other
        if other >= 0:
            self.before[other] = one

    def _new_row(self, like: int) -> int:
        if self.n == len(self.id):
            empty = {"leader": NONE, "store": NONE, "after": NONE, "before": NONE}
            for name in (
                "id", "size", "keys", "read", "write", "leader", "store", "role", "pending", "peer", "conf", "version",
                "alive", "hot", "degree", "absorbed", "after", "before",
            ):  # fmt: skip
                old = getattr(self, name)
                more = np.full((max(16, len(old)), *old.shape[1:]), empty.get(name, 0), old.dtype)
                setattr(self, name, np.concatenate([old, more]))
            self.members.lengthen(len(self.id))
        row, self.n = self.n, self.n + 1
        self.id[row], self.next_id = self.next_id, self.next_id + 1
        self.row_of[int(self.id[row])] = row
        self.alive[row] = True
        self.after[row] = self.before[row] = NONE
        self.conf[row], self.version[row] = self.conf[like], self.version[like]
        self.start_key.append("")
        return row

    def merge(self, source: int, target: int) -> None:
        kept = self.region(target)
        gone = self.region(source)
        if int(self.after[source]) == target:
            self.start_key[target] = self.start_key[source]
            self._link(int(self.before[source]), target)
        else:
            self._link(target, int(self.after[source]))
        self.read[target] += self.read[source]
        self.write[target] += self.write[source]
        if source in self.holes:
            self.holes.remove(source)
        else:
            self._forget(source)
        self.put(target, kept._replace(size=kept.size + gone.size, keys=kept.keys + gone.keys))
        self.version[target] = max(self.version[target], self.version[source]) + 1
        self.conf[target] = max(self.conf[target], self.conf[source])
        self.told.clear()

    def lose(self, row: int) -> None:
        """Forget a region; no other one has its keys, so that its row stays between its neighbours."""
        self._forget(row)
        self.holes.add(row)
        self.told.clear()

    def _forget(self, row: int) -> None:
        self.members.remove(self, row)
        self.alive[row] = False
        self.unnamed.discard(row)
        self.store[row] = self.leader[row] = NONE
        self.total_mib -= float(self.size[row])
        self.size[row] = 0
        del self.row_of[int(self.id[row])]
        self.count -= 1

    def beside(self, row: int) -> tuple[int, int]:
        """Give the rows of the regions before and after one, NONE where no region has the keys there."""
        before, after = int(self.before[row]), int(self.after[row])
        return NONE if before in self.holes else before, NONE if after in self.holes else after

    def mib_between(self, start_key: str, end_key: str) -> float:
        """Give the MiB of the regions that begin between two keys; "" is open."""
        if not start_key and not end_key:
            return self.total_mib
        begin = (self.start_key[row] for row in self.rows().tolist())
        held = [start_key <= key and (not end_key or key < end_key) for key in begin]
        return float(self.size[self.rows()][np.array(held, np.bool_)].sum())

    def rows(self) -> NDArray[np.int64]:
        return np.flatnonzero(self.alive[: self.n])

    def first(self) -> int:
        """Give the row of the first region, NONE where there is none."""
        found = np.flatnonzero(self.before[: self.n] == NONE)
        return next((row for row in found.tolist() if self.alive[row] or row in self.holes), NONE)

    def in_key_order(self) -> Iterable[int]:
        row = self.first()
        while row >= 0:
            if self.alive[row]:
                yield row
            row = int(self.after[row])


def keys_of(n: int) -> list[str]:
    """Give start keys that cut the key space evenly, in hexadecimal as pd-ctl prints it; the first one is empty."""
    step = 16**_KEY_DIGITS // max(n, 1)
    return ["", *(_key(i * step, _KEY_DIGITS) for i in range(1, n))]


def key_between(start: str, end: str) -> str:
    """Give a key between two, an empty end meaning none."""
    digits = max(len(start), len(end), _KEY_DIGITS) + 2
    try:
        low = int(start.ljust(digits, "0"), 16)
        high = int(end.ljust(digits, "0"), 16) if end else 16**digits
    except ValueError:
        return start + "8"
    return _key((low + high) // 2, digits)


def key_below(start: str, end: str) -> str:
    """Give the key before the last of a range, as GenerateTiDBEncodedSplitKey of PD's simulator."""
    digits = max(len(start), len(end))
    if not end:
        return key_between(start, end)
    key = f"{int(end.ljust(digits, '0'), 16) - 1:0{digits}X}"
    return key if key > start.ljust(digits, "0") else key + "FF"


def _key(number: int, digits: int) -> str:
    """Give whole bytes, without those at the end that are zero."""
    key = f"{number:0{digits}X}".rstrip("0")
    return key + "0" * (len(key) % 2)
