"""A user's own cluster, from what pd-ctl printed about it, and what is missing or unread there."""

from __future__ import annotations

import shlex
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pyarrow.compute as pc

from ticdc_lab.errors import SourceError
from ticdc_lab.pd_core.cluster import Cluster, cluster_of
from ticdc_lab.pd_core.config import EVICT_LEADER, EVICT_SLOW_STORE, GRANT_LEADER
from ticdc_lab.pd_core.limits import Limits, PerMinute
from ticdc_lab.pd_core.operators import Kind
from ticdc_lab.pd_core.pd_ctl_cluster import heard_s, regions_of, stores_of
from ticdc_lab.pd_core.pd_ctl_files import (
    BROKEN,
    COMMANDS,
    CONFIG,
    FIRST_SETTINGS,
    HISTOGRAM,
    HOT,
    HOT_STORES,
    LABELS,
    LIMITS,
    OPERATORS,
    OTHER,
    REGIONS,
    RULES,
    SCHEDULERS,
    STORES,
    PrintedFile,
    PrintedFiles,
    begins_with,
    documents,
    first_settings,
    is_coloured,
    listed,
    printed_files,
    reading,
    width_of,
)
from ticdc_lab.pd_core.pd_ctl_running import (
    MOVE_LITTLE,
    OF_LABELS,
    OF_WITNESSES,
    PdSchedulers,
    ShownOperator,
    default_schedulers,
    hot_of,
    influence_of,
    operators_of,
    paused_leaders,
    running_by_kind,
    schedulers_of,
)
from ticdc_lab.pd_core.pd_ctl_settings import (
    NEWEST,
    TIFLASH_LIMIT,
    PlacementRules,
    Unused,
    Version,
    config_in,
    labels_of,
    limits_of,
    rules_of,
    settings_of,
    version_of,
)
from ticdc_lab.pd_core.regions import LEARNER, ROLES, Flags, RegionColumns
from ticdc_lab.pd_core.rules import default_rules
from ticdc_lab.pd_core.stores import REMOVED, REMOVING, Store, is_tikv
from ticdc_lab.words import count, some_of


class Missing(NamedTuple):
    """Something that was not given: what, how to get it, and what is assumed instead."""

    what: str
    command: str
    assumed: str

    @property
    def sentence(self) -> str:
        """What is missing in a few words."""
        return f"{self.what} (give `{self.command}`); {self.assumed}"


class Loaded(NamedTuple):
    """A cluster and its regions, in key order, with what runs in PD."""

    cluster: Cluster
    regions: RegionColumns
    limits: Limits = MappingProxyType({})  # store limits by store, where given
    missing: tuple[Missing, ...] = ()  # what was not given although answers depend on it
    notes: tuple[str, ...] = ()  # what was assumed, mapped from an older version, or not read
    doubted: Flags | None = None  # marks the regions whose rules are not known, None where all are
    # PD's schedulers, its running operators, and how many of each limit's kind
    schedulers: PdSchedulers = default_schedulers()
    operators: tuple[ShownOperator, ...] = ()
    running: Mapping[Kind, int] = MappingProxyType({})
    expected: int = 0  # how many regions the stores count
    whole: bool = True  # whether the regions cover all keys
    heard_s: float = 0.0  # when the latest heartbeat of a store came, seconds since 1970: when it was printed, nearly
    source: str = "FOLDER"  # where it was read from, as a command line has it

    @property
    def first_line(self) -> str:
        """What is missing and which schedulers are left out, in one line; "" where nothing is."""
        config = self.cluster.config
        idle = MOVE_LITTLE if config.reject_leader else MOVE_LITTLE | OF_LABELS
        idle = idle if config.witness or self.regions.witness.any() else idle | OF_WITNESSES
        others = [f"{name}, which {does}" for name, does in self.schedulers.others() if name not in idle]
        parts = ["Missing: " + "; ".join(m.sentence for m in self.missing)] if self.missing else []
        parts += ["Not simulated: " + "; ".join(others)] if others else []
        return ". ".join(parts)


def from_pd_ctl(
    stores_json: str | Path, regions_json: str | Path, config_json: str | Path | None = None,
    rules_json: str | Path | None = None, *more: str | Path,
) -> Loaded:  # fmt: skip
    """Load a cluster from what pd-ctl printed.

    Parameters
    ----------
    stores_json
        From ``pd-ctl store``, also gzipped.
    regions_json
        From ``pd-ctl region`` or ``region scan``. A million regions take about half a minute.
    config_json
        From ``pd-ctl config show all``; the defaults of PD's version without it.
    rules_json
        From ``pd-ctl config placement-rules show`` or ``rule-bundle get``; without it the rule that the settings make.
    more
        Files with anything else that pd-ctl prints, each recognised by what it contains.

    Returns
    -------
    Loaded
        Keys are upper-case hexadecimal. Store limits are taken to have room.

    Raises
    ------
    SourceError
        A file cannot be read, or is of another form; the message has the place, what was expected and what was found.
    """
    with tempfile.TemporaryDirectory(prefix="ticdc-lab-") as copies:
        found = printed_files(more, copies)
        of = {kind: list(files) for kind, files in found.of.items()}
        for kind, path in ((STORES, stores_json), (REGIONS, regions_json), (CONFIG, config_json), (RULES, rules_json)):
            if path is not None:
                of.setdefault(kind, []).insert(0, PrintedFile(Path(path)))
        return loaded(PrintedFiles(of, found.unknown))


def from_folder(*given: str | Path) -> Loaded:
    """Load a cluster from folders, tars or files with what pd-ctl printed, each file recognised by what it contains.

    Raises
    ------
    SourceError
        No file has stores or none has regions, or one is of another form.
    """
    with tempfile.TemporaryDirectory(prefix="ticdc-lab-") as copies:
        return loaded(printed_files(given, copies))._replace(source=shlex.join(str(g) for g in given))


def loaded(files: PrintedFiles) -> Loaded:
    """Load a cluster from files by what they contain."""
    for kind in (STORES, REGIONS):
        if not files.get(kind):
            known = ", ".join(f"{len(f)} {k}" for k, f in sorted(files.of.items()) if k != BROKEN) or "none"
            hint = f"Save what `pd-ctl {COMMANDS[kind]}` prints and give it too{_NOT_IN_DIAG.get(kind, '')}."
            shown = [f"{f.name} begins with {begins_with(f)!r}" for f in files.unknown if f.kind != OTHER]
            named = f" ({some_of(shown or _named(files.unknown))})" if files.unknown else ""
            for broken in files.get(BROKEN):
                documents(broken)  # what is missing may lie behind the place where it is cut
            raise SourceError(f"no file has {kind}; found: {known}, {len(files.unknown)} unknown{named}", hint=hint)
    first = files.get(FIRST_SETTINGS)
    config_file = next(iter((*files.get(CONFIG), *first)), None)
    told, unused = config_in(files.get(CONFIG))
    told = told or (first_settings(first[0]) if first else {})
    version = _version(files.get(STORES), told)
    settings = settings_of(config_file, version, told)
    config = settings.config
    stores, older = stores_of(files.get(STORES), config.max_store_down_time_s)
    regions, changed = regions_of(files.get(REGIONS))
    with reading(config_file or files.get(STORES)[0], CONFIG):
        schedulers = schedulers_of(told, files.get(SCHEDULERS), version)
    operators, unread = operators_of(files.get(OPERATORS))
    placed = rules_of(files.get(RULES))
    pending = _counted(regions, regions.pending)
    paused = paused_leaders(schedulers, version)
    evicted = {i for name in _EVICTING for i in schedulers.get(name).stores}
    stores = [
        s._replace(
            pending_peers=pending[s.id], leader_in_paused=s.leader_in_paused or paused.get(s.id, _OPEN)[0],
            leader_out_paused=s.leader_out_paused or paused.get(s.id, _OPEN)[1], evicted=s.id in evicted,
        )
        for s in stores
    ]  # fmt: skip
    limits = dict(limits_of(config_file, told))
    for file, told_too in ((f, one) for f in files.get(LIMITS) for one in documents(f)):
        limits |= limits_of(file, told_too)
    unlimited = sorted((s for s in stores if s.id not in limits and s.state != REMOVED), key=lambda s: s.id)
    limits |= {s.id: settings.limit or (PerMinute() if is_tikv(s) else TIFLASH_LIMIT) for s in unlimited}
    limits |= {s.id: limits[s.id]._replace(remove=0.0) for s in unlimited if s.state == REMOVING}  # PD's store delete
    whole = not gaps_between(regions) and regions.start_key[0].as_py() == regions.end_key[-1].as_py() == ""
    led = int((regions.leader < 0).sum()) + sum(s.leader_count for s in stores)
    expected = len(regions.id) if whole else max(led, len(regions.id))
    cluster = cluster_of(config, stores, placed.rules)
    on = _counted(regions, regions.peers >= 0)
    average = int(regions.size.sum()) // len(regions.id)
    if not whole and (peers := sum(s.region_count for s in stores)):
        on, average = Counter({s.id: s.region_count for s in stores}), int(sum(s.region_size for s in stores) / peers)
    sizes = dict(zip(regions.id.tolist(), regions.size.tolist(), strict=True)) if operators else {}
    cluster = cluster._replace(
        regions_on=on, region_count=expected, average_region_size=average,
        influence=influence_of(operators, sizes, average),
    )  # fmt: skip
    regions = regions._replace(
        hot=hot_of(files.get(HOT), config.hot_region_cache_hits_threshold),
        busy=frozenset(o.region for o in operators),
        labels=labels_of(files.get(LABELS), regions, version),
    )
    doubted = _doubted(cluster, regions, files, placed)
    notes = (
        *_unlabelled(cluster), *settings.mapped,
        *(f"not read: setting {u}" for u in settings.unread), *_assumed(placed),
        *(f"not read: operator {u}" for u in unread), *(f"not read: {u}" for u in schedulers.unread),
        *_unread(files, unused, [] if files.get(CONFIG) else first[:1]),
        *(f"not read: {count(n, 'store')} of {f}, since another file heard of them later" for f, n in older.items()),
        *([f"not read: older forms of {count(changed, 'region')}: a file has a newer epoch"] if changed else []),
        *(f"not simulated: {name}, which {does}" for name, does in schedulers.others()),
    )  # fmt: skip
    missing = (
        *_missing_regions(regions, expected, whole=whole),
        *_missing_stores(cluster, regions, whole=whole),
        *_missing_rules(cluster, regions, files, placed),
        *_missing_settings(
            told, version, [] if settings.limit else unlimited, "" if files.get(CONFIG) or not first else first[0].name
        ),
        *_missing_runtime(files, schedulers, regions),
    )
    return Loaded(
        cluster, regions, limits, missing, notes, doubted, schedulers, operators, running_by_kind(operators, config),
        expected, whole, heard_s(files.get(STORES)),
    )  # fmt: skip


_HOT_WRITE, _HOT_READ = 60 * 1024.0, 60 * 8 * 1024.0
"""Bytes of a minute from which on PD counts a region as one that may be hot."""

_OPEN = (False, False)
_EVICTING = (EVICT_SLOW_STORE, "evict-slow-trend-scheduler", "evict-stopping-store-scheduler")


def _version(stores: Sequence[PrintedFile], told: Mapping[str, Any]) -> Version:
    """Give PD's version: from the settings, else the oldest that a store states."""
    if told.get("cluster-version"):
        return version_of(str(told["cluster-version"]))
    found = []
    for file in stores:
        with reading(file, STORES):
            found += [version_of(str((s.get("store") or {}).get("version") or "")) for s in listed(file, "stores")]
    return min(found, default=NEWEST)


def gaps_between(c: RegionColumns) -> int:
    """Count the gaps between the keys of regions."""
    ends, starts = c.end_key.slice(0, len(c.id) - 1), c.start_key.slice(1)
    return int(np.count_nonzero(np.asarray(pc.not_equal(ends, starts)))) if len(c.id) > 1 else 0


def _missing_regions(c: RegionColumns, expected: int, *, whole: bool) -> list[Missing]:
    if whole:
        return []
    n, gaps = len(c.id), gaps_between(c)
    outside = (c.start_key[0].as_py() != "") + (c.end_key[-1].as_py() != "")
    where = [f"{gaps} gaps between keys"] if gaps > 1 else ["a gap between keys"] if gaps else []
    where += ["the keys at an end are not there"] if outside else []
    of = f"{n:,} of {expected:,} regions are given" if expected > n else f"{n:,} given regions do not cover all keys"
    assumed = "counts of regions are of those given, stores count for themselves"
    return [Missing(f"{of}, {' and '.join(where)}", "region", assumed)]


_APART = 0.1
"""A part of a store's peers that moves between two commands; more is of another moment, or of another cluster."""


def _missing_stores(cluster: Cluster, c: RegionColumns, *, whole: bool) -> list[Missing]:
    """Name stores that only regions know, and those that count other regions than were given."""
    there = _counted(c, c.peers >= 0)
    unknown = [i for i in c.stores if i not in cluster.stores]
    found = []
    if unknown:
        n = int((np.append(np.isin(c.stores, unknown), False)[c.peers]).any(axis=1).sum())
        which = f"store{'s' if len(unknown) > 1 else ''} {some_of(list(map(str, unknown)))}"
        found.append(
            Missing(
                f"{which}, where {count(n, 'region has a peer', 'regions have peers')}", "store", "taken as removed"
            )
        )
    reported, silent_s = _counted(c, c.down & (c.peers >= 0)), cluster.config.max_store_down_time_s
    gone = [s for s in cluster.stores.values() if s.state != REMOVED and s.heartbeat_age_s >= silent_s]
    if whole and (unsaid := [str(s.id) for s in gone if there[s.id] and not reported[s.id]]):
        which = f"store{'s' if len(unsaid) > 1 else ''} {some_of(unsaid)}"
        assumed = "PD replaces none before; forecasts take them as down"
        found.append(Missing(f"reports of regions that peers on {which} are down", COMMANDS[REGIONS], assumed))
    apart = [s for s in cluster.stores.values() if s.state != REMOVED and _of_another_moment(s, there[s.id])]
    if whole and apart:
        s = max(apart, key=lambda s: abs(s.region_count - there[s.id]))
        more = f" (and {count(len(apart) - 1, 'other store')})" if len(apart) > 1 else ""
        counts = f"store {s.id} counts {s.region_count:,} peers, the regions {there[s.id]:,}{more}"
        assumed = "scores are made of what stores count"
        found.append(Missing(f"stores and regions of one moment: {counts}", COMMANDS[STORES], assumed))
    return found


def _of_another_moment(s: Store, peers: int) -> bool:
    return abs(s.region_count - peers) > max(_FEW, _APART * max(s.region_count, peers))


_FEW = 20


def _special(cluster: Cluster) -> list[Store]:
    return [s for s in cluster.stores.values() if not is_tikv(s) and s.state != REMOVED]


def _doubted(cluster: Cluster, c: RegionColumns, files: PrintedFiles, placed: PlacementRules) -> Flags | None:
    """Mark the regions that rules place that were not given: what they miss or have too much is unknown."""
    if not cluster.config.placement_rules or files.get(RULES):
        unknown = [g for g in placed.ungrouped if not g.startswith("TiDB_")]
        if not unknown or not cluster.config.placement_rules:
            return None
        marks = np.zeros(len(c.id), dtype=np.bool_)
        for r in (r for r in placed.rules if r.group in unknown):
            after = np.asarray(pc.greater_equal(c.start_key, r.start_key))
            before = np.asarray(pc.less(c.start_key, r.end_key)) if r.end_key else True
            marks |= after & before
        return marks
    special = np.array([s in {x.id for x in _special(cluster)} for s in c.stores] + [False])
    there = c.peers >= 0
    learns = there & (c.role == ROLES.index(LEARNER)) & ~c.pending
    marks = np.asarray((learns | special[c.peers]).any(axis=1), dtype=np.bool_)
    return marks if marks.any() else None


def _missing_rules(cluster: Cluster, c: RegionColumns, files: PrintedFiles, placed: PlacementRules) -> list[Missing]:
    if not cluster.config.placement_rules:
        return []
    if files.get(RULES):
        if not placed.ungrouped:
            return []
        some = ", ".join(placed.ungrouped[:3]) + (" .." if len(placed.ungrouped) > 3 else "")
        tidb = all(g.startswith("TiDB_") for g in placed.ungrouped)
        assumed = (
            "index and override are assumed as TiDB writes them" if tidb
            else "their regions are not judged, since the index and override of the group decide"
        )  # fmt: skip
        many = f"{len(placed.ungrouped)} rule groups" if len(placed.ungrouped) > 1 else "the rule group"
        return [Missing(f"the bundle of {many} {some}", COMMANDS[RULES], assumed)]
    special = _special(cluster)
    learners = int(((c.role == ROLES.index(LEARNER)) & (c.peers >= 0) & ~c.pending).any(axis=1).sum())
    if not special and not learners:
        return []
    named = ", ".join(str(s.id) for s in special[:5]) + (" .." if len(special) > 5 else "")
    have = f"stores {named} have" if len(special) > 1 else f"store {named} has"
    why = [f"{have} an engine label"] if special else []
    why += [count(learners, "region has learners", "regions have learners")] if learners else []
    assumed = "regions with peers there or learners are not judged, the others by max-replicas"
    return [Missing(f"placement rules, although {' and '.join(why)}: add --rules", COMMANDS[RULES], assumed)]


def _missing_settings(
    told: Mapping[str, Any], version: Version, unlimited: Sequence[Store], first: str
) -> list[Missing]:
    """Name settings that were not printed: all, those that ``config show`` leaves out, and limits of stores.

    ``first``: the file of settings for PD's first start that replaces them.
    """
    found, schedule = [], told.get("schedule")
    since = "the newest PD" if version == NEWEST else f"PD {'.'.join(map(str, version))}"
    if not {"schedule", "replication"} & set(told):
        found.append(Missing("settings", COMMANDS[CONFIG], f"the defaults of {since} are assumed"))
    elif first:
        assumed = f"{first} is assumed, which PD reads at its first start only, without later changes"
        found.append(Missing("settings", COMMANDS[CONFIG], assumed))
    elif isinstance(schedule, Mapping) and "schedulers-v2" not in schedule and "schedulers" not in schedule:
        what = "the settings that `config show` leaves out"
        found.append(Missing(what, COMMANDS[CONFIG], f"their defaults in {since} are assumed"))
    if unlimited:
        which = ", ".join(str(s.id) for s in unlimited[:5]) + (" .." if len(unlimited) > 5 else "")
        assumed = "15 peers a minute are assumed" + ("" if all(map(is_tikv, unlimited)) else ", 30 of TiFlash")
        assumed += ", none for peers that leave an offline store" if any(s.state == REMOVING for s in unlimited) else ""
        found.append(Missing(f"limits of store{'s' if len(unlimited) > 1 else ''} {which}", COMMANDS[LIMITS], assumed))
    return found


def _missing_runtime(files: PrintedFiles, schedulers: PdSchedulers, c: RegionColumns) -> list[Missing]:
    found = []
    if not files.get(OPERATORS):
        found.append(Missing("running operators", COMMANDS[OPERATORS], "none is assumed to run"))
    if not schedulers.told:
        found.append(Missing("schedulers", COMMANDS[SCHEDULERS], "PD's default ones are assumed"))
    for name in (EVICT_LEADER, GRANT_LEADER):
        if schedulers.get(name).runs and not schedulers.get(name).stores:
            found.append(Missing(f"the stores of {name}", f"scheduler config {name}", "it is left out"))
    busy = 0 if c.write is None or c.read is None else int(((c.write > _HOT_WRITE) | (c.read > _HOT_READ)).sum())
    if busy and not files.get(HOT):
        found.append(
            Missing(
                f"hot regions, although {count(busy, 'has', 'have')} load enough", COMMANDS[HOT], "none is taken as hot"
            )
        )
    return found


def _assumed(placed: PlacementRules) -> list[str]:
    return [
        f"assumed: rule group {name} has index {g.position} and override {str(g.override).lower()}"
        for name, g in sorted(placed.assumed.items()) if name != "pd"
    ]  # fmt: skip


def _unlabelled(cluster: Cluster) -> list[str]:
    """Name location labels that no store has: they spread no replicas."""
    there = {key.lower() for s in cluster.stores.values() if s.state != REMOVED for key in s.labels}
    rules = cluster.rules if cluster.config.placement_rules else default_rules(cluster.config)
    lost: dict[str, list[str]] = {}
    for r in rules:
        for label in r.location_labels:
            if label.lower() not in there:
                lost.setdefault(label, []).append(f"{r.group}/{r.id}")
    return [
        f"no store has the label {label}, a location label of {'rule' if len(of) == 1 else 'rules'} {some_of(of)}: "
        "it spreads no replicas (pd-ctl store label ID KEY VALUE)"
        for label, of in lost.items()
    ]


_NOT_IN_DIAG = {REGIONS: "; diag does not collect it"}
_MOST_NAMED = 40
_EMPTY = ("null", "[]", "{}")


def _unread(files: PrintedFiles, unused: Sequence[Unused], taken: Sequence[PrintedFile]) -> list[str]:
    idle = [(kind, f) for kind in (HOT_STORES, HISTOGRAM) for f in files.get(kind)]
    found = [f"not read: {f.name} ({kind}: it decides nothing)" for kind, f in idle]
    same = [u.file for u in unused if not u.other]
    found += [f"not read: {name}, since another file has these settings too" for name in _named(same)]
    found += [f"not read: {', '.join(u.other[:5])} of {u.file}, since an earlier file has another value"
              for u in unused if u.other]  # fmt: skip
    first = [f for f in files.get(FIRST_SETTINGS) if f not in taken]
    why = "settings of PD's first start: PD keeps later ones, which `config show all` prints"
    found += [f"not read: {name} ({why})" for name in _named(first)]
    found += [f"not read: the colours of {f.name}" for some in files.of.values() for f in some if is_coloured(f)]
    cut = {f.name: width for some in files.of.values() for f in some if (width := width_of(f))}
    found += [f"joined: the lines of {name}, which a terminal cut at {n} characters" for name, n in cut.items()]
    read = {f for kind, some in files.of.items() if kind != BROKEN for f in some}
    broken = [f for f in files.get(BROKEN) if f not in read]
    found += [f"not read: {name}: its JSON is cut or broken" for name in _named(broken)]
    empty = [f for f in files.unknown if f.copy is None and begins_with(f) in _EMPTY]  # a copy is there no more
    found += [f"not read: {name} is empty: name it after its command, as operator.json" for name in _named(empty)]
    if names := _named([f for f in files.unknown if f not in empty]):
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        found.append(f"not read, no output of pd-ctl that is known here: {', '.join(names[:_MOST_NAMED])}{more}")
    return found


def _named(files: Sequence[PrintedFile]) -> list[str]:
    """Name files, each name once."""
    names = Counter(f"some of {f.name}" if f.kind == OTHER else f.name for f in files)
    return [name if n == 1 else f"{n} files {name}" for name, n in names.items()]


def _counted(c: RegionColumns, which: np.typing.NDArray[np.bool_]) -> Counter[int]:
    """Count the peers that are marked, by store."""
    counts = np.bincount(c.peers[which], minlength=len(c.stores))
    return Counter({store: int(n) for store, n in zip(c.stores, counts, strict=True) if n})
