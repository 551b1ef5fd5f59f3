"""What a scenario of the table scheduler can let happen, beside the faults that every model knows."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from ticdc_lab.simulate import faults as kernel
from ticdc_lab.simulate.planned import (
    FAULTS,
    EventKind,
    Lasting,
    NewNode,
    NewTableId,
    Node,
    Nodes,
    TableId,
    Text,
    one_or_more,
    table,
)
from ticdc_lab.simulate.reading import ReadBy
from ticdc_lab.simulate.scheduler import roles
from ticdc_lab.simulate.scheduler.capture import Stick
from ticdc_lab.simulate.scheduler.etcd_messages import ETCD, Ddl, Expire, TwoOwners

if TYPE_CHECKING:
    from ticdc_lab.simulate.scenario import Scenario


Keys: TypeAlias = Annotated[
    tuple[str, ...], ReadBy(lambda value, names: tuple(one.text() for one in one_or_more(value)))
]
"""Keys of a table at which spans meet; a single one needs no list."""


def _spans(table: int, keys: tuple[str, ...]) -> tuple[roles.Span, ...]:
    return tuple(roles.Span(table, left, right) for left, right in pairwise(("", *keys, "")))


def asked(command: Any, at_us: int, scenario: Scenario) -> Iterator[kernel.Fault]:
    """Ask every capture that is there: the one that owns, or has the table, does it; the others ignore it."""
    joined = [e.what.capture for e in scenario.events if e.kind == "join" and e.at_us < at_us]
    for capture in (*scenario.cluster.captures, *joined):
        yield kernel.Ask(at_us, capture, command)


EVENTS: dict[str, type] = FAULTS | table(
    {
        "join": EventKind(
            "A capture that was not there starts and registers.",
            {"capture": NewNode, "version": (Text | None, None)},
            lambda w, e, s: [kernel.Join(e.at_us, w.capture)],
        ),
        "restart_processor": EventKind(
            'The processor of a capture loses its state; the capture keeps its id (design, "Processor restarts").',
            {"capture": Node},
            lambda w, e, s: [kernel.Ask(e.at_us, w.capture, roles.Restart())],
        ),
        "expire_session": EventKind(
            "Etcd ends the session of a capture, which hears of it as the settings say.",
            {"capture": Node},
            lambda w, e, s: [kernel.Ask(e.at_us, ETCD, Expire(w.capture))],
        ),
        "two_owners": EventKind(
            "Etcd elects a second owner beside the first one: what TiCDC's design assumes never to happen.",
            {"same_rev": (bool, False)},
            lambda w, e, s: [kernel.Ask(e.at_us, ETCD, TwoOwners(w.same_rev))],
        ),
        "stuck_table": EventKind(
            "The sink of a table takes nothing any more, on the capture that has it then, for a while or until freed.",
            {"table": TableId, "for_us": (Lasting | None, None)},
            lambda w, e, s: [
                *asked(Stick(w.table), e.at_us, s),
                *(() if w.for_us is None else asked(Stick(w.table, free=True), e.at_us + w.for_us, s)),
            ],
        ),
        "free_table": EventKind(
            "The sink of a stuck table takes rows again.",
            {"table": TableId},
            lambda w, e, s: asked(Stick(w.table, free=True), e.at_us, s),
        ),
        "ddl": EventKind(
            "A DDL of this moment: no watermark passes it until it is executed, which takes this long once all are "
            "there.",
            {"takes_us": Lasting},
            lambda w, e, s: [kernel.Ask(e.at_us, ETCD, Ddl(takes_us=w.takes_us))],
        ),
        "add_table": EventKind(
            "A table is created and should be replicated.",
            {"table": NewTableId, "traffic": (int, 1)},
            lambda w, e, s: [kernel.Ask(e.at_us, ETCD, Ddl(add=(w.table,)))],
        ),
        "drop_table": EventKind(
            "A table is dropped and should no longer be replicated.",
            {"table": TableId},
            lambda w, e, s: [kernel.Ask(e.at_us, ETCD, Ddl(drop=(w.table,)))],
        ),
        "move_table": EventKind(
            "A user asks for a table on a certain capture.",
            {"table": TableId, "to": Node},
            lambda w, e, s: asked(roles.MoveTable(w.table, w.to), e.at_us, s),
        ),
        "split_table": EventKind(
            "A user asks for a table to be divided at some keys into spans, on any nodes or on one for each: of v4.",
            {"table": TableId, "keys": Keys, "to": (Nodes, ())},
            lambda w, e, s: asked(roles.SplitTable(w.table, w.keys, w.to), e.at_us, s),
        ),
        "merge_spans": EventKind(
            "A user asks for the spans of a table that meet at some keys, all on one node, to become one: of v4.",
            {"table": TableId, "keys": Keys},
            lambda w, e, s: asked(roles.MergeSpans(_spans(w.table, w.keys)), e.at_us, s),
        ),
        "move_maintainer": EventKind(
            "A user asks for the maintainer on a certain capture: of v4 with a coordinator.",
            {"to": Node},
            lambda w, e, s: asked(roles.MoveMaintainer(w.to), e.at_us, s),
        ),
        "rebalance": EventKind(
            "A user asks for tables to be spread evenly.", {}, lambda w, e, s: asked(roles.Rebalance(), e.at_us, s)
        ),
        "drain": EventKind(
            "A user asks for a capture without tables.",
            {"capture": Node},
            lambda w, e, s: asked(roles.Drain(w.capture), e.at_us, s),
        ),
    }
)
