"""What runs in a PD, as pd-ctl prints it: its schedulers, its operators, and the regions that are hot."""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

import orjson

from ticdc_lab.pd_core.cluster import NO_INFLUENCE, Influence, effects_of
from ticdc_lab.pd_core.config import (
    BALANCE_HOT,
    BALANCE_LEADER,
    BALANCE_RANGE,
    BALANCE_REGION,
    EVICT_LEADER,
    EVICT_SLOW_STORE,
    GRANT_LEADER,
    Config,
)
from ticdc_lab.pd_core.operators import (
    AddLearner,
    Kind,
    MergeRegion,
    RemovePeer,
    SplitRegion,
    Step,
    TransferLeader,
    counted_as,
)
from ticdc_lab.pd_core.pd_ctl_files import (
    HOT,
    OPERATORS,
    SCHEDULERS,
    PrintedFile,
    documents,
    named_documents,
    reading,
    wrong,
)
from ticdc_lab.pd_core.pd_ctl_settings import Version
from ticdc_lab.pd_core.regions import KeyRanges

_OTHERS = {
    BALANCE_HOT: "moves hot regions once stores were uneven for five minutes",
    "hot-region-scheduler": "moves hot regions once stores were uneven for five minutes",
    EVICT_SLOW_STORE: "evicts the leaders of one slow store",
    "evict-slow-trend-scheduler": "evicts the leaders of a store whose latency rises",
    "evict-stopping-store-scheduler": "evicts the leaders of stores that are about to stop",
    "label-scheduler": "moves leaders off stores whose label-property rejects them",
    "shuffle-leader-scheduler": "transfers leaders by chance, again and again",
    "shuffle-region-scheduler": "moves peers by chance, again and again",
    "shuffle-hot-region-scheduler": "moves hot regions by chance, again and again",
    "random-merge-scheduler": "merges neighbours by chance",
    "scatter-range-scheduler": "spreads the regions of a key range",
    "grant-hot-region-scheduler": "gathers hot regions on chosen stores",
    "balance-witness-scheduler": "evens out witnesses",
    "transfer-witness-leader-scheduler": "moves leaders off witnesses",
    BALANCE_RANGE: "evens out the regions of a key range",
    "adjacent-region-scheduler": "spreads neighbours (up to v4.0)",
    "balance-adjacent-region-scheduler": "spreads neighbours (up to v4.0)",
    "split-bucket-scheduler": "splits hot buckets",
}
"""Schedulers that are not asked here, and what they do."""

MOVE_LITTLE = frozenset({
    BALANCE_HOT, "hot-region-scheduler", EVICT_SLOW_STORE, "evict-slow-trend-scheduler",
    "evict-stopping-store-scheduler", "split-bucket-scheduler",
})  # fmt: skip
"""The ones that a PD starts with; the others move regions or leaders without end, or against what is forecast."""
OF_LABELS = frozenset({"label-scheduler"})
OF_WITNESSES = frozenset({"balance-witness-scheduler", "transfer-witness-leader-scheduler"})
"""Those that a PD of some versions starts with, and that move nothing without label-property, or without witnesses."""

_DEFAULT = (BALANCE_LEADER, BALANCE_REGION, BALANCE_HOT)
_EVICTS_SLOW_SINCE: Version = (7, 6)


class SchedulerState(NamedTuple):
    """A scheduler: whether it has rounds, the stores that it is about, and how many operators a round has at most.

    ``ranges`` are the keys that it is about, by store; 0 means all stores, nothing all keys.
    """

    name: str
    runs: bool = True
    why_not: str = ""
    stores: tuple[int, ...] = ()
    ranges: Mapping[int, KeyRanges] = MappingProxyType({})
    batch: int = 0

    def keys_of(self, store: int = 0) -> KeyRanges:
        """Give the keys that it is about on a store."""
        return self.ranges.get(store, ())


class PdSchedulers(NamedTuple):
    """The schedulers of a PD by name; ``told`` is False if they were not printed and PD's defaults are assumed."""

    of: Mapping[str, SchedulerState]
    told: bool
    unread: tuple[str, ...] = ()

    def get(self, name: str) -> SchedulerState:
        """Give a scheduler; one that PD does not list has no rounds."""
        return self.of.get(name, SchedulerState(name, False, "PD does not list it"))

    @property
    def no_balance(self) -> str:
        """Why no region is balanced, "" where balance-region has rounds."""
        state = self.get(BALANCE_REGION)
        return "" if state.runs else f"{BALANCE_REGION} has no rounds: {state.why_not}"

    def others(self) -> Iterator[tuple[str, str]]:
        """Give the running schedulers that are not asked here, and what they do."""
        for name, state in sorted(self.of.items()):
            if state.runs and name not in (BALANCE_LEADER, BALANCE_REGION, EVICT_LEADER, GRANT_LEADER):
                kind = "scatter-range-scheduler" if name.startswith("scatter-range-") else name
                yield name, _OTHERS.get(kind, "no such scheduler of PD is known here")


def default_schedulers(version: Version = (0,)) -> PdSchedulers:
    """Give the schedulers that every PD starts with, and of its version's the one that is played here."""
    names = (*_DEFAULT, *([EVICT_SLOW_STORE] if version >= _EVICTS_SLOW_SINCE else []))
    return PdSchedulers({name: SchedulerState(name) for name in names}, False)


def schedulers_of(config: Mapping[str, Any], files: Sequence[PrintedFile], version: Version = (0,)) -> PdSchedulers:
    """Read schedulers from the settings (``schedulers-v2``), ``scheduler show`` and ``scheduler config NAME``.

    What ``scheduler show`` lists runs, what it does not list does not; the settings show what is disabled and about
    which stores a scheduler is. A scheduler's own settings replace the arguments that it was added with.
    """
    schedule = config.get("schedule")
    schedule = schedule if isinstance(schedule, Mapping) else config
    entries = schedule.get("schedulers-v2") or schedule.get("schedulers") or ()
    found: dict[str, SchedulerState] = {}
    for entry in entries:
        name, told = f"{entry['type']}-scheduler", [str(a).strip('"') for a in entry.get("args") or ()]
        stores = tuple(int(a) for a in told[:1] if a.isdigit())
        _put(found, name, stores, disabled=bool(entry.get("disable")))
        if name in _RANGED and (keys := _key_ranges(told[len(stores) :])):
            found[name] = found[name]._replace(ranges={**found[name].ranges, (stores or (0,))[0]: keys})
    payload = schedule.get("schedulers-payload") or {}
    for name, told in payload.items():
        _with_arguments(found, name, told, must_be_there=bool(entries))
    shown: dict[str, str] | None = None
    off: dict[str, str] = {}
    unread: dict[str, None] = {}
    taken: KeyRanges = ()
    for file in files:
        with reading(file, SCHEDULERS):
            for said, told in named_documents(file):
                only = next((status for status in ("paused", "disabled") if status[:5] in said), "")
                jobs = [j for j in told if isinstance(j, Mapping) and "job-id" in j] if isinstance(told, list) else []
                if jobs:
                    ranges = next((j.get("ranges") for j in jobs if j.get("status") in ("running", "pending")), None)
                    taken = _key_ranges(ranges) or ((("", ""),) if ranges else ())
                    _put(found, BALANCE_RANGE, (), disabled=False)
                elif told is None or isinstance(told, list):
                    names = _shown(told or (), file, only)
                    if only or any(isinstance(one, Mapping) and "paused_at" in one for one in told or ()):
                        off |= dict.fromkeys((_plain(name)[0] for name in names), only or "paused")
                    else:
                        shown = (shown or {}) | names
                elif isinstance(told, Mapping):
                    inner = {k: v for k, v in told.items() if k.endswith("-scheduler") and isinstance(v, Mapping)}
                    for name, arguments in inner.items() or [(_name_in(said, told), told)]:
                        _with_arguments(found, name, arguments, must_be_there=False)
                        if _plain(name)[0] not in _RANGED and not any(k.startswith("evict") for k in arguments):
                            unread[f"the settings of {name}"] = None
    if shown is None:
        listed = found if entries else dict(default_schedulers(version).of) | found
    else:
        listed = {}
        for raw, status in shown.items():
            _put(listed, raw, (), disabled=False)
            name = _plain(raw)[0]
            known = found.get(name, listed[name])
            about = tuple(sorted({*listed[name].stores, *known.stores}))
            listed[name] = listed[name]._replace(stores=about, ranges=known.ranges, batch=known.batch)
            if status in ("paused", "disabled"):
                off[name] = status
    for name, status in off.items():
        listed[name] = listed.get(name, SchedulerState(name))._replace(runs=False, why_not=f"it is {status}")
    if taken and listed.get(BALANCE_RANGE, SchedulerState("", False)).runs:
        for name in (n for n in (BALANCE_LEADER, BALANCE_REGION) if n in listed and not listed[n].keys_of()):
            listed[name] = listed[name]._replace(ranges={0: _around(taken)})  # PD leaves the job's keys to it
    return PdSchedulers(listed, shown is not None or bool(entries), tuple(unread))


def _around(taken: KeyRanges) -> KeyRanges:
    """Give the keys that are in none of some ranges."""
    found, at = [], ""
    for start, end in sorted(taken):
        found += [(at, start)] if at < start else []
        if not end:
            return tuple(found) or (("FF" * 64, ""),)
        at = max(at, end)
    return (*found, (at, ""))


_RANGED = (BALANCE_LEADER, BALANCE_REGION, EVICT_LEADER, GRANT_LEADER)


def _key_ranges(told: Any) -> KeyRanges:
    """Read key ranges, () for all keys.

    Arguments are pairs of escaped text. The settings of a scheduler have objects, keys in base64 up to v8.5.4 and in
    hexadecimal since.
    """
    if told and not isinstance(told[0], Mapping):
        keys = [unquote_to_bytes(str(t).replace("+", " ")).hex().upper() for t in told]
        found = [*zip(keys[::2], keys[1::2], strict=False)]
    else:
        found = [(_printed_key(r.get("start-key")), _printed_key(r.get("end-key"))) for r in told or ()]
    return () if ("", "") in found else tuple(found)


def _printed_key(text: str | None) -> str:
    in_hex = re.fullmatch(r"(?:[0-9a-fA-F]{2})*", text or "")
    return (text or "").upper() if in_hex else base64.b64decode(text or "", validate=True).hex().upper()


def _plain(name: str) -> tuple[str, tuple[int, ...]]:
    """Split a name of v3 and v4, ``evict-leader-scheduler-5``, into scheduler and store."""
    match = re.fullmatch(r"(.*-scheduler)-(\d+)", name)
    return (match[1], (int(match[2]),)) if match else (name, ())


def _put(found: dict[str, SchedulerState], raw: str, stores: tuple[int, ...], *, disabled: bool) -> None:
    name, more = _plain(raw)
    name = BALANCE_HOT if name == "hot-region-scheduler" else name
    old = found.get(name)
    if disabled and old is not None and old.runs:
        return
    before = old.stores if old is not None and old.runs else ()
    why = "it was removed (disable: true)" if disabled else ""
    ranges = old.ranges if old is not None and old.runs else {}
    found[name] = SchedulerState(name, not disabled, why, tuple(sorted({*before, *stores, *more})), ranges)


def _with_arguments(found: dict[str, SchedulerState], raw: str, told: Any, *, must_be_there: bool) -> None:
    told = orjson.loads(told) if isinstance(told, str) and told.strip() else told
    name, stores = _plain(raw)
    if not isinstance(told, Mapping) or (must_be_there and name not in found):
        return
    stores += tuple(int(i) for i in told.get("store-id-ranges") or ())
    for key, value in told.items():
        if re.fullmatch(r"evict.*stores", key) and isinstance(value, list):
            stores += tuple(int(i) for i in value)
    of_stores = told.get("store-id-ranges")
    ranges = {int(i): r for i, r in of_stores.items()} if isinstance(of_stores, Mapping) else {0: told.get("ranges")}
    keys = {i: read for i, r in ranges.items() if (read := _key_ranges(r))} if name in _RANGED else {}
    old = found.get(name, SchedulerState(name))
    found[name] = old._replace(
        stores=tuple(sorted(set(stores))) or old.stores, ranges=keys, batch=int(told.get("batch") or 0)
    )


def _shown(told: Sequence[Any], file: PrintedFile, only: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in told:
        if isinstance(one, str):
            found[one] = only
        elif isinstance(one, Mapping) and "name" in one:
            found[str(one["name"])] = str(one.get("status") or "")
        else:
            raise wrong(file, "scheduler show", "names of schedulers", one)
    return found


_BY_ARGUMENT = {
    "min-hot-byte-rate": BALANCE_HOT, "roles": "shuffle-region-scheduler",
    "range-name": "scatter-range-scheduler", "store-leader-id": "grant-hot-region-scheduler",
    "evict-stores": EVICT_SLOW_STORE, "evict-by-trend-stores": "evict-slow-trend-scheduler",
    "evicted-stores": "evict-stopping-store-scheduler",
}  # fmt: skip
"""Settings that only one scheduler has."""


def _name_in(said: str, told: Mapping[str, Any]) -> str:
    """Give the scheduler that settings are of, else that their file is named after or their command asks for."""
    if one := next((name for argument, name in _BY_ARGUMENT.items() if argument in told), ""):
        return one
    name = said.replace("_", "-")
    known = (EVICT_LEADER, GRANT_LEADER, BALANCE_LEADER, BALANCE_REGION, *_OTHERS)
    for one in known:
        if one in name or one.removesuffix("-scheduler") in name:
            return one
    return f"{said} (a scheduler's settings; name the file after it)"


class ShownOperator(NamedTuple):
    """An operator of ``operator show``: its steps that are not done yet change stores."""

    desc: str
    kind: Kind
    region: int
    steps: tuple[Step, ...]
    size: float | None
    text: str


_OPERATOR = re.compile(
    r'^"?(?P<desc>[\w-]+)\s*(?:\{(?P<brief>.*?)\}\s*)?\(kind:(?P<kind>[\w,-]*), region:(?P<region>\d+)'
    r"\((?P<version>\d+), ?(?P<conf>\d+)\)(?P<more>.*)", re.DOTALL,
)  # fmt: skip
_STEPS: tuple[tuple[re.Pattern[str], Any], ...] = (
    (re.compile(r"add (?P<w>witness )?(?:light )?(?:learner )?peer \d+ on store (\d+)"),
     lambda m: AddLearner(int(m[2]), bool(m["w"]))),
    (re.compile(r"remove peer on store (\d+)"), lambda m: RemovePeer(int(m[1]))),
    (re.compile(r"transfer leader from store (\d+) to store (\d+)"), lambda m: TransferLeader(int(m[1]), int(m[2]))),
    (re.compile(r"merge region (\d+) into region (\d+)"), lambda m: MergeRegion(int(m[1]), int(m[2]))),
    (re.compile(r"split region with policy (\w+)"), lambda m: SplitRegion(m[1])),
)  # fmt: skip


def operators_of(files: Sequence[PrintedFile]) -> tuple[tuple[ShownOperator, ...], tuple[str, ...]]:
    """Read the operators of ``operator show``, and give those that are not of a known form as text."""
    found, unread = [], []
    for file in files:
        with reading(file, OPERATORS):
            for one in (o for told in documents(file) for o in told or ()):
                text = one if isinstance(one, str) else orjson.dumps(one).decode()
                read = _object(one) if isinstance(one, Mapping) else _operator(text)
                if read is not None:
                    found.append(read)
                elif not re.search(r"\)\s*(finished|timeout)", text):
                    unread.append(text[:100])
    return tuple(found), tuple(unread)


def _operator(text: str) -> ShownOperator | None:
    match = _OPERATOR.match(text)
    if match is None or re.search(r"\)\s*(finished|timeout)\s*\"?$", text):
        return None
    more = match["more"]
    at, size = re.search(r"currentStep: ?(\d+)", more), re.search(r"size: ?(\d+)", more)
    begin = more.find("steps:[")
    steps = _steps(more[begin + 7 :].split("], timeout:")[0].split("])")[0] if begin >= 0 else "")
    left = steps[int(at[1]) if at else 0 :]
    kind = _kind(match["kind"])
    return ShownOperator(
        match["desc"], kind, int(match["region"]), tuple(s for s in left if s is not None),
        float(size[1]) if size else None, text.strip('"'),
    )  # fmt: skip


def _object(told: Mapping[str, Any]) -> ShownOperator | None:
    """Read an operator as an object, as PD's API gives it on request."""
    if told.get("status") in ("SUCCESS", "TIMEOUT", "CANCEL", "REPLACED", "EXPIRED"):
        return None
    raw = told.get("steps") or ()
    steps = [s for one in raw for s in _steps(one if isinstance(one, str) else orjson.dumps(one).decode())]
    left = steps[int(told.get("currentStep") or told.get("current_step") or 0) :]
    region = int(told.get("regionID") or told.get("region_id") or 0)
    kind, text = _kind(str(told.get("kind", ""))), f"{told.get('desc')} {told.get('brief')}"
    return ShownOperator(str(told.get("desc")), kind, region, tuple(s for s in left if s is not None), None, text)


def _steps(text: str) -> list[Step | None]:
    """Read steps in order, None for one that changes no store's size or leaders."""
    if re.search(r"\b0:\{", text):
        parts = re.findall(r"\d+:\{(.*?)\}", text)
    else:
        parts = re.split(r", (?=add |remove |transfer |use joint|leave joint|merge |split |switch )", text)
    found: list[Step | None] = []
    for part in (p for p in parts if p.strip()):
        read = (make(m) for pattern, make in _STEPS if (m := pattern.search(part)))
        found.append(None if part.startswith(("use joint", "leave joint")) else next(read, None))
    return found


def _kind(text: str) -> Kind:
    """Read kinds; ``balance`` of v3 and v4 is no limit's."""
    found = Kind(0)
    for name in text.split(","):
        found |= Kind.__members__.get(name.strip().upper().replace("-", "_"), Kind(0))
    return found


def running_by_kind(operators: Iterable[ShownOperator], config: Config) -> Counter[Kind]:
    """Count operators by the kinds whose limits they take up."""
    return Counter(kind for o in operators if o.kind for kind in counted_as(o.kind, config))


def influence_of(
    operators: Iterable[ShownOperator], sizes: Mapping[int, float], average: float
) -> dict[int, Influence]:
    """Give what the steps that are left will have added to stores.

    ``sizes`` are MiB by region, for operators whose text has none (before v6.1); ``average`` where that is unknown too.
    """
    found: dict[int, Influence] = {}
    for op in operators:
        size = op.size if op.size is not None else sizes.get(op.region, average)
        for step in op.steps:
            for store, more in effects_of(step, size) if step is not None else ():
                found[store] = found.get(store, NO_INFLUENCE).plus(more)
    return found


def hot_of(files: Sequence[PrintedFile], threshold: int) -> frozenset[int]:
    """Read the regions that ``hot read`` and ``hot write`` show as hot for long enough."""
    found = set()
    for file in files:
        with reading(file, HOT):
            sides = [(told or {}).get(side) or {} for told in documents(file) for side in ("as_leader", "as_peer")]
            for peer in (p for s in sides for store in s.values() for p in (store or {}).get("statistics") or ()):
                if peer.get("hot_degree", threshold) >= threshold:
                    found.add(int(peer["region_id"]))
    return frozenset(found)


def paused_leaders(state: PdSchedulers, version: Version) -> Mapping[int, tuple[bool, bool]]:
    """Give the stores that balance moves no leader into or out of, since a scheduler evicts or grants them.

    PD up to v8.5 stops both ways for either scheduler; later ones stop evicted stores as targets and granted ones as
    sources.
    """
    both = version < (9,)
    evict, grant = state.get(EVICT_LEADER), state.get(GRANT_LEADER)
    found = {i: (True, both) for i in evict.stores if evict.runs}
    for i in grant.stores if grant.runs else ():
        into, _ = found.get(i, (both, True))
        found[i] = (into, True)
    return found
