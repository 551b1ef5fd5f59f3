"""Merging small regions into a neighbour (pkg/schedule/checker/merge_checker.go; `pd_notes.md` section 9)."""

from __future__ import annotations

from typing import NamedTuple

from ticdc_lab.pd_core.builder import CannotBuild
from ticdc_lab.pd_core.cluster import Cluster, is_replicated
from ticdc_lab.pd_core.create import merge_regions
from ticdc_lab.pd_core.explained import Explained, Notes
from ticdc_lab.pd_core.regions import MERGE, SCHEDULE, Region, is_healthy
from ticdc_lab.pd_core.stores import REMOVING

LARGEST_TARGET_MIB, TARGET_FACTOR = 500, 4


class SplitSizes(NamedTuple):
    """How TiKV splits: a region above ``max`` is cut into pieces of ``split``; MiB and keys."""

    max_mib: float = 144
    split_mib: float = 96
    max_keys: int = 1_440_000
    split_keys: int = 960_000


DEFAULT_SIZES = SplitSizes()


class Neighbours(NamedTuple):
    """The regions before and after a region, None at the ends.

    ``recently_split`` are ids that must not merge yet, ``borders`` the keys at which a rule for labels begins or ends.
    """

    before: Region | None
    after: Region | None
    recently_split: frozenset[int] = frozenset()
    borders: frozenset[str] = frozenset()


def check_merge(
    cluster: Cluster, region: Region, beside: Neighbours, *, up_s: float = float("inf"),
    sizes: SplitSizes = DEFAULT_SIZES,
) -> Explained:  # fmt: skip
    """Give the two operators that merge a region, which would vanish, into one of its neighbours.

    PD started ``up_s`` seconds ago: nothing is merged before ``split-merge-interval``. What TiKV would split again by
    its ``sizes`` is not merged.
    """
    notes = Notes()
    why = _stays(cluster, region, beside, up_s)
    if why:
        return notes.explained((), why)
    target = _target(cluster, region, beside, notes)
    if target is None:
        return notes.explained((), "; ".join(notes.said))
    why = _too_large(cluster, region, target, sizes)
    if why:
        return notes.explained((), why)
    try:
        return notes.explained(merge_regions(cluster, region, target), f"merge: region {region.id} to {target.id}")
    except CannotBuild as e:
        return notes.explained((), str(e))


def _stays(cluster: Cluster, region: Region, beside: Neighbours, up_s: float) -> str:
    config = cluster.config
    if up_s < config.split_merge_interval_s:
        return "PD started less than split-merge-interval ago"
    if region.id in beside.recently_split:
        return "the region was split less than split-merge-interval ago"
    if SCHEDULE in region.denied:
        return "a label of the region forbids scheduling"
    if not region.leader:
        return "the region has no leader"
    if not config.is_small(region.size, region.keys):
        return "the region is not small"
    if not is_healthy(region):
        return "a peer is down or pending"
    if not is_replicated(cluster, region):
        return "it has not the peers it should have"
    return "the region is hot" if region.hot else ""


def _target(cluster: Cluster, region: Region, beside: Neighbours, notes: Notes) -> Region | None:
    """Give the neighbour to merge into: the next one, or the previous one where it is smaller."""
    target = None
    for name, neighbour in (("next", beside.after), ("previous", beside.before)):
        if name == "previous" and cluster.config.enable_one_way_merge:
            continue
        why = _unfit(cluster, region, neighbour, beside)
        if why:
            notes.said.append(f"{name} region: {why}")
        elif neighbour is not None and (target is None or neighbour.size < target.size):
            target = neighbour
    return target


def _unfit(cluster: Cluster, region: Region, neighbour: Region | None, beside: Neighbours) -> str:
    if neighbour is None:
        return "there is none"
    if neighbour.id in beside.recently_split:
        return "it was split less than split-merge-interval ago"
    if neighbour.hot:
        return "it is hot"
    if MERGE in region.denied | neighbour.denied:
        return "a label of one of the two forbids merging"
    if max(region.start_key, neighbour.start_key) in beside.borders:
        return "a rule for labels ends between the two"
    if not cluster.config.enable_cross_table_merge and table_of(region.start_key) != table_of(neighbour.start_key):
        return "it is of another table, and enable-cross-table-merge is false"
    if _crosses_rule(cluster, region, neighbour):
        return "a placement rule ends between the two"
    if _leaving(cluster, region, neighbour):
        return "it has a peer on a leaving store, where the region has none"
    if not is_healthy(neighbour):
        return "one of its peers is down or pending"
    return "" if is_replicated(cluster, neighbour) else "it has not the peers it should have"


def table_of(key: str) -> str:
    """Give the id of the table that a region's first key, as pd-ctl prints it, belongs to; "" for no table's.

    Keys are encoded in groups of eight bytes with a ninth after each; a table's begins with ``t`` and eight bytes.
    """
    plain = key[:16] + key[18:20]
    return plain[2:18].upper() if len(plain) == 18 and plain[:2] == "74" else ""


def _crosses_rule(cluster: Cluster, region: Region, neighbour: Region) -> bool:
    if not cluster.config.placement_rules:
        return False
    border = max(region.start_key, neighbour.start_key)
    return any(border in (r.start_key, r.end_key) for r in cluster.rules if border)


def _leaving(cluster: Cluster, region: Region, neighbour: Region) -> bool:
    for peer in neighbour.peers:
        store = cluster.stores.get(peer.store)
        if (store is None or store.state == REMOVING) and peer.store not in region.stores:
            return True
    return False


def _too_large(cluster: Cluster, region: Region, target: Region, sizes: SplitSizes) -> str:
    if target.size > max(LARGEST_TARGET_MIB, TARGET_FACTOR * sizes.max_mib):
        return "the neighbour is too large"
    config = cluster.config
    mib, keys = region.size + target.size, region.keys + target.keys
    if mib >= sizes.max_mib and 0 < mib % sizes.split_mib <= config.max_merge_region_size:
        return "the merged region would be split again by its size"
    if keys >= sizes.max_keys and 0 < keys % sizes.split_keys <= config.max_merge_region_keys:
        return "the merged region would be split again by its keys"
    return ""
