"""Key ranges that a scheduler is confined to, and what labels of regions forbid, as a scenario tells them."""

from __future__ import annotations

from collections.abc import Iterable

from ticdc_lab.simulate.pd.regions import MERGE, SCHEDULE, Region
from ticdc_lab.simulate.pd.replay.fields import Fields, Malformed

Range = tuple[str, str]
EVERYWHERE: Range = ("", "")

_RANGES = ("ranges", "range", "key_ranges", "key_range")
_RULES = ("label_rules", "region_labels", "region_label_rules")
_FORBIDDING = {"merge_option": MERGE, "schedule": SCHEDULE}


def ranges_of(settings: Fields) -> tuple[Range, ...]:
    """Read the key ranges of a scheduler: pairs of keys, or their keys in one list; "" is open."""
    for key in _RANGES:
        if key in settings:
            told = settings.items(key)
            flat = [k for t in told for k in (t if isinstance(t, list) else [t])]
            if len(flat) % 2 or not all(isinstance(k, str) for k in flat):
                raise Malformed(f"{settings.where}.{key}", "pairs of keys", told)
            return tuple(zip(flat[::2], flat[1::2], strict=True))
    return (EVERYWHERE,)


def lies_in(region: Region, ranges: Iterable[Range]) -> bool:
    """Whether a region lies wholly within one of the ranges, as PD draws only such regions."""
    return any(
        start <= region.start_key and (not end or (bool(region.end_key) and region.end_key <= end))
        for start, end in ranges
    )


def with_denials(regions: tuple[Region, ...], settings: Fields) -> tuple[Region, ...]:
    """Give the regions with what label rules forbid for their keys: ``merge_option`` or ``schedule`` is ``deny``."""
    rules = [r for key in _RULES if key in settings for r in settings.objects(key)]
    for rule in rules:
        where = (rule.text("start_key", ""), rule.text("end_key", ""))
        denied = denied_by(rule) | denied_by(rule.object("labels", {}))
        regions = tuple(r._replace(denied=r.denied | denied) if lies_in(r, (where,)) else r for r in regions)
    return regions


def denied_by(labels: Fields) -> frozenset[str]:
    """Give what labels forbid."""
    return frozenset(what for key, what in _FORBIDDING.items() if key in labels and labels.text(key) == "deny")
