"""Label topology: zones, racks, hosts and stores as a tree, wide as their peers, coloured by how full they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from ticdc_lab.figures.figure import Figure, Icicle
from ticdc_lab.figures.label_brackets import in_order
from ticdc_lab.figures.selecting import Selection, marked
from ticdc_lab.figures.theme import HEAT, count, finish, label, sentence
from ticdc_lab.simulate.pd.looking.recording import Sample
from ticdc_lab.simulate.pd.stores import REMOVED, Store, shown_state
from ticdc_lab.simulate.pd.stores import label as label_of

_LEVEL_PX = 64
_LEAST_RANGE = 0.4
"""Colours span at least so much around the mean, so that small differences look small."""

_NOTE = (
    "Each level is a location label, the lowest one the stores; a box is as wide as it has peers and coloured by its "
    "peers a store. Look for a place with fewer stores than its neighbours: with isolation its stores hold more."
)


class Box(NamedTuple):
    """A place or a store."""

    id: str
    parent: str
    name: str
    stores: int
    peers: int
    leaders: int
    state: str


def label_topology(sample: Sample, *, finding: str = "") -> Figure:
    """Draw where stores are and what they hold.

    Parameters
    ----------
    sample
        The moment.
    finding
        What the picture shows, where the caller knows better than the numbers that are the title by default.
    """
    boxes = boxes_of(sample)
    if len(boxes) < 2:
        return sentence("There is no store", "The cluster has no store at this moment.")
    each = [b.peers / b.stores for b in boxes]
    texts = [f"{b.peers:,} peers, {b.leaders:,} leaders" + (f", {b.state}" if b.state else "") for b in boxes]
    leaves = {b.id for b in boxes} - {b.parent for b in boxes}
    mean = each[0]
    low, high = min([*each, mean * (1 - _LEAST_RANGE)]), max([*each, mean * (1 + _LEAST_RANGE)])
    bar = {"title": {"text": "peers a store"}, "thickness": 12, "len": 0.9, "outlinewidth": 0}
    fig = Figure(
        Icicle(
            ids=[b.id for b in boxes], parents=[b.parent for b in boxes], labels=[label(b.name) for b in boxes],
            values=[max(b.peers, 0.2) if b.id in leaves else 0 for b in boxes], branchvalues="remainder",
            text=texts, sort=False,
            textinfo="label+text", tiling={"orientation": "v", "pad": 2}, root={"color": "rgba(128,128,128,0.15)"},
            marker={"colors": each, "colorscale": HEAT, "cmin": low, "cmax": high if high > low else low + 1,
                    "showscale": True, "colorbar": bar},
            hovertemplate="<b>%{label}</b><br>%{text}<br>%{color:,.0f} peers a store<extra></extra>",
        )
    )  # fmt: skip
    fig.update_layout(uniformtext={"minsize": 12, "mode": "hide"})
    marked(fig.data[0], [Selection(store=int(b.id[6:])) if b.id.startswith("store ") else None for b in boxes])
    depth = 2 + len(sample.cluster.config.location_labels)
    title = label(finding, most=300) or finding_of(sample, boxes)
    return finish(fig, title=title, note=_NOTE, height=170 + _LEVEL_PX * depth, note_below_px=16, least_px=760)


def boxes_of(sample: Sample) -> list[Box]:
    """Give the tree, parents before their children."""
    config, found = sample.cluster.config, sample.cluster.stores
    labels = config.location_labels
    stores = in_order([s for s in (found[i] for i in sorted(found)) if s.state != REMOVED], labels)
    out = [_place("cluster", "", "the cluster", stores)]
    for depth in range(1, len(labels) + 1):
        for path in dict.fromkeys(_path(s, labels[:depth]) for s in stores):
            inside = [s for s in stores if _path(s, labels[:depth]) == path]
            value = path[-1] or f"no {labels[depth - 1]}"
            name = value if depth > 1 or not path[-1] else f"{labels[0]} {value}"
            out.append(_place(_id(path), _id(path[:-1]), name, inside))
    for s in stores:
        state = shown_state(s, config.max_store_down_time_s)
        box = Box(f"store {s.id}", _id(_path(s, labels)), f"store {s.id}", 1, s.region_count, s.leader_count, "")
        out.append(box._replace(state="" if state == "Up" else state))
    return out


def _path(s: Store, labels: Sequence[str]) -> tuple[str, ...]:
    return tuple(label_of(s, key) for key in labels)


def _id(path: Sequence[str]) -> str:
    return "/".join(["cluster", *path])


def _place(place_id: str, parent: str, name: str, stores: Sequence[Store]) -> Box:
    peers, leaders = sum(s.region_count for s in stores), sum(s.leader_count for s in stores)
    return Box(place_id, parent, name, max(1, len(stores)), peers, leaders, "")


def finding_of(sample: Sample, boxes: Sequence[Box]) -> str:
    """Say how the stores are spread over places."""
    labels = sample.cluster.config.location_labels
    stores = [b for b in boxes if b.id.startswith("store ")]
    if not labels:
        return f"{count(len(stores), 'store')} without location labels: PD takes each for a place of its own"
    levels = [[b for b in boxes if b.id.count("/") == depth and b not in stores] for depth in range(1, len(labels) + 1)]
    depth, places = next(((d, p) for d, p in enumerate(levels) if len(p) > 1), (len(levels) - 1, levels[-1]))
    sizes = sorted(Counter(b.stores for b in places))
    each = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    spread = f"{count(len(places), label(labels[depth]))} of {each} {'store' if each == '1' else 'stores'}"
    most, least = max(stores, key=lambda b: b.peers), min(stores, key=lambda b: b.peers)
    need = sample.cluster.config.max_replicas
    apart = f"room for {need} replicas apart" if len(places) >= need else f"fewer places than the {need} replicas"
    return f"{spread}, {apart}; {most.name} holds {most.peers:,} peers, {least.name} {least.peers:,}"
