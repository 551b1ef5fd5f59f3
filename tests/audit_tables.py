"""The audit of a small log in memory, without any session: what :func:`ticdc_lab.audit.audit` finds on an engine.

The kernels are the package's: those that a watch calls on what it remembers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.audit import MAX_PER_GUARANTEE, checks_possible, run, transform
from ticdc_lab.audit.defined import IMAGES, READ
from ticdc_lab.audit.filtered import LeftOut
from ticdc_lab.audit.findings import unrecorded
from ticdc_lab.audit.history import UPDATE, Changes, changes_of
from ticdc_lab.audit.marks import Promises
from ticdc_lab.audit.old_values import stretches_of
from ticdc_lab.events import POSITION
from ticdc_lab.events.sample import Sample
from ticdc_lab.facts import LogFacts
from ticdc_lab.settings import UNKNOWN, Settings

_IMAGE = pa.list_(pa.struct([("name", pa.string()), ("value", pa.string())]))


def audit_table(
    events: pa.Table, *, protocol: str, has_commit_ts: bool = True, checks: Iterable[str] | None = None,
    max_per_guarantee: int | None = MAX_PER_GUARANTEE, causes: pa.Table | None = None, sample: Sample | None = None,
    lost: Collection[str] = (), settings: Settings = UNKNOWN,
) -> pa.Table:  # fmt: skip
    """Findings in the order of :func:`ticdc_lab.audit.audit`, with its parameters.

    ``events``: with :data:`ticdc_lab.events.schema.KEYS`; images are compared where it has IMAGE_HASHES, and keys are
    named where it has ``columns`` and ``before``.
    """
    facts = LogFacts.of(events).without_offsets_of(sample)
    possible = checks_possible(protocol, has_commit_ts=has_commit_ts, sample=sample, lost=lost, carried=facts.carried)
    names = transform._chosen(checks, possible)
    _, of_images, _ = run.apart(names)
    definitions = run.judged_definitions(facts, protocol, LeftOut.read(settings))
    found = [run.found_in_facts(facts, names, protocol=protocol, definitions=definitions)]
    promises = Promises.read(facts, protocol=protocol, settings=settings)
    if of_images and definitions.judge:
        rows = events.filter(pc.equal(events["kind"], "row"))
        for name in {*READ, *IMAGES} - {*rows.column_names}:
            rows = rows.append_column(name, pa.nulls(rows.num_rows, _IMAGE if name in IMAGES else pa.string()))
        found.append(unrecorded(run._misfits(rows, of_images, definitions), promises))
    explained = causes if run.are_explained(protocol) else None
    changes = Changes.read(changes_of(events))
    of_rows = run.found_in_changes(changes, names, promises, causes=explained, has_commit_ts=has_commit_ts)
    undecided = of_rows.filter(pc.equal(of_rows["guarantee"], run.UNDECIDED))
    if undecided.num_rows:
        updates = changes.commit_ts[changes.rank == UPDATE]
        where = stretches_of(updates, undecided["commit_ts"].to_numpy(), facts)
        promises = Promises.read(facts, protocol=protocol, settings=settings, stretches=where)
        of_rows = run.found_in_changes(changes, names, promises, causes=explained, has_commit_ts=has_commit_ts)
    whole, _ = run.without_unsure(pa.concat_tables([*found, of_rows]))
    return run.in_order(run._keyed(whole, _keys_in(whole, events)), max_per_guarantee)


def _keys_in(found: pa.Table, events: pa.Table) -> run.Keys:
    """The keys of the rows that are found."""
    if not {"columns", "before"} <= set(events.column_names):
        return {}
    numbered = events.select(POSITION).append_column("at", pa.array(range(events.num_rows), pa.int64()))
    of_rows = numbered.filter(pc.equal(events["kind"], "row"))
    at = of_rows.join(run._places(found), list(POSITION), join_type="inner")["at"]
    return run._by_place(
        (e, run.key_of(e["columns"] if e["columns"] is not None else e["before"]))
        for e in events.select([*POSITION, "columns", "before"]).take(at).to_pylist()
    )
