"""PD's settings, by PD's names and with PD's defaults, and the names of its schedulers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, overload

from numpy.typing import NDArray

BALANCE_LEADER, BALANCE_REGION = "balance-leader-scheduler", "balance-region-scheduler"
BALANCE_HOT, BALANCE_RANGE = "balance-hot-region-scheduler", "balance-range-scheduler"
EVICT_LEADER, GRANT_LEADER = "evict-leader-scheduler", "grant-leader-scheduler"
EVICT_SLOW_STORE = "evict-slow-store-scheduler"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What ``pd-ctl config show`` calls schedule and replication settings.

    Sizes are MiB, times seconds, ratios 0 to 1. ``tolerant_size_ratio`` 0 lets PD choose, see
    :func:`ticdc_lab.pd_core.balance.tolerance`. ``reject_leader`` holds (key, value) of labels whose stores take no
    leader. Two are no settings: up to v4.0.13, v5.0.3 and v5.1.0 an operator takes up the limits of all its kinds
    (``operators_count_once``), and up to v4.0.15, v5.0.5, v5.1.1 and v5.2 a peer that goes from a store that is down
    counts as large as it is (``removals_of_down_are_small``). Source: `pd_notes.md` sections 2 to 9.
    """

    max_replicas: int = 3
    location_labels: tuple[str, ...] = ()
    isolation_level: str = ""
    placement_rules: bool = True
    joint_consensus: bool = True
    witness: bool = False
    region_score_formula_version: str = "v2"
    high_space_ratio: float = 0.7
    low_space_ratio: float = 0.8
    tolerant_size_ratio: float = 0.0
    leader_schedule_policy: str = "count"
    leader_schedule_limit: int = 4
    region_schedule_limit: int = 2048
    replica_schedule_limit: int = 64
    merge_schedule_limit: int = 8
    hot_region_schedule_limit: int = 4
    max_snapshot_count: int = 64
    max_pending_peer_count: int = 64
    max_store_down_time_s: float = 1800.0
    store_limit_version: str = "v1"
    max_merge_region_size: int = 54
    max_merge_region_keys: int = 540_000
    split_merge_interval_s: float = 3600.0
    patrol_region_interval_s: float = 0.01
    enable_one_way_merge: bool = False
    enable_cross_table_merge: bool = True
    enable_remove_down_replica: bool = True
    enable_replace_offline_replica: bool = True
    enable_make_up_replica: bool = True
    enable_remove_extra_replica: bool = True
    enable_location_replacement: bool = True
    reject_leader: tuple[tuple[str, str], ...] = ()
    hot_region_cache_hits_threshold: int = 3
    halt_scheduling: bool = False
    operators_count_once: bool = True
    removals_of_down_are_small: bool = True

    @overload
    def is_small(self, size: float, keys: int) -> bool: ...
    @overload
    def is_small(self, size: NDArray[Any], keys: NDArray[Any]) -> NDArray[Any]: ...
    def is_small(self, size: Any, keys: Any) -> Any:
        """Whether a region of so many MiB and keys is one to merge; of arrays, which regions are."""
        return (size <= self.max_merge_region_size) & (keys <= self.max_merge_region_keys)


PATROL_REGIONS = 128
"""Regions that PD's patrol looks at in each patrol-region-interval, one 1024th of all at least."""

NO_SETTINGS = frozenset({"reject_leader", "operators_count_once", "removals_of_down_are_small"})
"""Fields that pd-ctl neither shows nor sets: label properties, and what follows from PD's version."""

OTHER_NAMES = {
    "enable-placement-rules": "placement_rules",
    "enable-joint-consensus": "joint_consensus",
    "enable-witness": "witness",
    "max-store-down-time": "max_store_down_time_s",
    "split-merge-interval": "split_merge_interval_s",
    "patrol-region-interval": "patrol_region_interval_s",
}
"""Fields that are not called as PD's settings are."""


def field_of(setting: str) -> str:
    """Give the field of one of PD's settings, ``leader-schedule-limit``."""
    return OTHER_NAMES.get(setting, setting.replace("-", "_"))
