"""A user's own cluster, from what pd-ctl printed about it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from ticdc_lab.simulate.pd.cluster import Cluster, cluster_of
from ticdc_lab.simulate.pd.ctl.regions import regions_of
from ticdc_lab.simulate.pd.ctl.settings import limits_of, rules_of, settings_of
from ticdc_lab.simulate.pd.ctl.stores import stores_of
from ticdc_lab.simulate.pd.forecast import Limits
from ticdc_lab.simulate.pd.region_columns import RegionColumns


class Loaded(NamedTuple):
    """A cluster and its regions, in key order; store limits by store, where they were told."""

    cluster: Cluster
    regions: RegionColumns
    limits: Limits = MappingProxyType({})


def from_pd_ctl(
    stores_json: str | Path, regions_json: str | Path, config_json: str | Path | None = None,
    rules_json: str | Path | None = None,
) -> Loaded:  # fmt: skip
    """Load a cluster from what pd-ctl printed.

    Parameters
    ----------
    stores_json
        From ``pd-ctl store``, also gzipped.
    regions_json
        From ``pd-ctl region``: a list, or a region a line. A million regions take about half a minute.
    config_json
        From ``pd-ctl config show all``; PD's defaults without it.
    rules_json
        From ``pd-ctl config placement-rules show``; without it the rule that the settings make.

    Returns
    -------
    Loaded
        Keys are as printed, hexadecimal. What pd-ctl does not print is taken to be as in a quiet cluster: store limits
        have room, no operator runs, no region is hot.

    Raises
    ------
    SourceError
        A file cannot be read, or is of another form; the message says where, what was expected and what was found.
    """
    config = settings_of(_path(config_json))
    stores = stores_of(Path(stores_json), config.max_store_down_time_s)
    regions = regions_of(Path(regions_json))
    pending = _counted(regions, regions.pending)
    stores = [s._replace(pending_peers=pending[s.id]) for s in stores]
    cluster = cluster_of(config, stores, rules_of(_path(rules_json)))
    cluster = cluster._replace(
        regions_on=_counted(regions, regions.peers >= 0), region_count=len(regions.id),
        average_region_size=int(regions.size.sum()) // len(regions.id),
    )  # fmt: skip
    return Loaded(cluster, regions, limits_of(_path(config_json)))


def _path(given: str | Path | None) -> Path | None:
    return None if given is None else Path(given)


def _counted(c: RegionColumns, which: np.typing.NDArray[np.bool_]) -> Counter[int]:
    """Count the peers that are marked, by store."""
    counts = np.bincount(c.peers[which], minlength=len(c.stores))
    return Counter({store: int(n) for store, n in zip(c.stores, counts, strict=True) if n})
