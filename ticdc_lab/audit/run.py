"""All guarantees on one log, at once: its rows, their images and what the log states besides.

As a transform of events: :mod:`ticdc_lab.audit.transform`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ticdc_lab.audit.defined import READ, Definitions, defined_rows, unproved
from ticdc_lab.audit.filtered import LeftOut
from ticdc_lab.audit.findings import (
    FOUND,
    FOUND_DDL,
    ORDER,
    Causes,
    as_image_table,
    as_table,
    batches_of,
    few,
    first_of,
    listed,
    unrecorded,
)
from ticdc_lab.audit.guarantees import GUARANTEES, checks_possible
from ticdc_lab.audit.guarantees.rows import inserts_of_rows_there
from ticdc_lab.audit.history import (
    ROWS_AT_ONCE,
    Changes,
    Judge,
    Suspects,
    judged,
    judged_here,
    suspects,
)
from ticdc_lab.audit.marks import NAMES, Event, Promises, promises_of
from ticdc_lab.audit.old_values import (
    EACH,
    EACH_DDL,
    OffStretch,
    OldValues,
    extent_of,
    in_blocks,
    stretches,
    updates_in_blocks,
)
from ticdc_lab.audit.stated import Stated
from ticdc_lab.codecs.decode import EMPTY_MESSAGE
from ticdc_lab.engine.shuffle import Batches, Kernel, in_one, is_sent, spark_order
from ticdc_lab.events import POSITION
from ticdc_lab.events.arrays import lie_in
from ticdc_lab.events.sample import Sample
from ticdc_lab.events.schema import FINDINGS, IMAGES, require_columns
from ticdc_lab.facts import LogFacts
from ticdc_lab.facts.definitions import table_text
from ticdc_lab.facts.known import ordered_offsets
from ticdc_lab.facts.limits import Twice, are_twice, held_offsets, held_twice
from ticdc_lab.facts.schemas import arrow_of
from ticdc_lab.settings import UNKNOWN, Settings
from ticdc_lab.sources.stored import HELD
from ticdc_lab.words import are

if TYPE_CHECKING:
    from ticdc_lab.sources.stored import StoredEvents

MAX_PER_GUARANTEE = 10_000

AT_ONCE = 4096
"""Findings about watermarks and DDL that are held at a time."""

KEY = "array_join(transform(filter(coalesce(columns, before), c -> c.is_key), c -> concat(c.name, '=', c.value)), ', ')"
_CAUSES = {
    **dict.fromkeys(("topic", *NAMES, "cause"), "string"), "partition": "int", "offset": "bigint", "seq": "int",
    "may_be": "string", "tried": "string",
}  # fmt: skip
_MOVES, CHAIN = "rows_stay_in_one_partition", "row_images_chain"
"""What a rule of dispatch may explain: it moves rows, and their former changes lie in other partitions."""
UNSURE, UNDECIDED = "~inserts that may be updates", "~inserts beside updates"
"""Replace a guarantee inside the audit: what only counts, and what is a finding where old values are on."""

NOT_DISPATCHED = frozenset({"csv"})
"""Protocols of storage folders alone: a file is of one table, and no dispatcher chooses it, so none explains a move.

canal-json is written there, too, but its rows do not show their place.
"""

Keys = dict[tuple[Any, ...], str]


@dataclass(frozen=True, slots=True)
class Audited:
    """What an audit of a whole log gives."""

    findings: pa.Table  # :data:`ticdc_lab.events.schema.FINDINGS`, in the order of :func:`audit`
    # Guarantees that cannot be judged on the log, or not of all its rows, each with the reason.
    unjudged: Mapping[str, str] = field(default_factory=dict)


def audited(
    events: Callable[[], DataFrame],
    facts: LogFacts,
    causes: Callable[[], DataFrame | pa.Table],
    *,
    protocol: str,
    has_commit_ts: bool = True,
    max_per_guarantee: int = MAX_PER_GUARANTEE,
    sample: Sample | None = None,
    files: StoredEvents | None = None,
    quarantine: Callable[[], DataFrame] | None = None,
    refused: pa.Table | None = None,
    moves: bool = False,
    lost: Collection[str] = (),
    of_storage: bool = False,
    settings: Settings = UNKNOWN,
) -> Audited:
    """:func:`audit` with causes, computed at once and for less: what the log itself does not ask for is left out.

    It alone finds different messages at one offset, described under ``offsets_are_contiguous``.

    Parameters
    ----------
    events
        Gives the events of :func:`audit`; called only if ``files`` and ``facts`` are not enough.
    facts
        What was gathered of them, which is not gathered again.
    causes
        Gives them as a frame or a table; called only if some row is found in several partitions,
        or its changes do not follow each other in the only one of a topic.
    protocol, has_commit_ts, max_per_guarantee, sample, lost
        As of :func:`audit`.
    of_storage
        As of :func:`checks_possible`.
    files
        The same events in files, if they lie in some: images are read from them as columns, and beside the embedded
        engine this process judges rows.
    quarantine
        Gives the messages that could not be decoded (:data:`ticdc_lab.events.schema.QUARANTINE`), which may lie at the
        offsets of others; None for none.
    refused
        Offsets of these, without empty ones, if they are known.
    moves
        A row has been seen in several partitions: causes are asked at once, else rows that moved are judged twice.
    settings
        What is known of the changefeed's settings.

    Returns
    -------
    Audited
        Its findings, and what cannot be judged.
    """
    possible = checks_possible(
        protocol, has_commit_ts=has_commit_ts, sample=sample, lost=lost, carried=facts.carried, of_storage=of_storage
    )
    names = [name for name, why in possible.items() if not why]
    of_rows, of_images, of_log = apart(names)
    kept = listed(max_per_guarantee, FOUND.names)
    left_out = LeftOut.read(settings)
    definitions = judged_definitions(facts, protocol, left_out)
    old_values = OldValues.read(facts, protocol=protocol, settings=settings)

    here = files is not None and not files.by_spark  # this process judges, and nothing is sent to an engine

    def promised(here: bool = here) -> DataFrame | pa.Table:
        return promises_of(
            facts, events, protocol=protocol, sample=sample, settings=settings, stretches=old_values.stretches,
            here=here,
        )  # fmt: skip

    promises = promised()

    def judged_rows(names: list[str], causes: DataFrame | pa.Table | None) -> pa.Table:
        if not here or isinstance(causes, DataFrame):
            sent = promised(here=False) if here else promises
            rows = rows_judged(
                events(), names, sent, causes, max_per_guarantee, has_commit_ts=has_commit_ts, files=files
            )
            return in_one(rows, kept, FOUND_DDL, order=ORDER).toArrow().cast(FOUND)
        assert files is not None
        assert isinstance(promises, pa.Table)
        judge = _judge(names, explained=causes is not None, most=max_per_guarantee)
        beside = promises if causes is None else pa.concat_tables([promises, causes], promote_options="default")
        each = judged_here(files, judge, FOUND, beside=beside, has_commit_ts=has_commit_ts, kept=few(max_per_guarantee))
        return pa.Table.from_batches(kept(iter(each.take(spark_order(each, ORDER)).to_batches())), FOUND)

    twice = _held_twice(events, facts, quarantine, refused) if "offsets_are_contiguous" in of_log else []
    of_the_log = found_in_facts(
        facts, of_log, protocol=protocol, definitions=definitions, twice=twice, most=max_per_guarantee
    )
    explained = causes() if moves and are_explained(protocol) else None
    rows = judged_rows(of_rows, explained)
    if pc.any(pc.equal(rows["guarantee"], UNDECIDED)).as_py():
        sent = promised(here=False)
        found_at = _stretches(events(), sent, extent_of(facts), has_commit_ts=has_commit_ts, files=files)
        old_values = replace(old_values, stretches=found_at)
        promises = promised()
        others = pc.is_in(rows["guarantee"], pa.array([UNDECIDED, CHAIN]))
        rows = pa.concat_tables([rows.filter(pc.invert(others)), judged_rows([CHAIN], explained)])
    elif old_values.mixed and "before_hash" in events().columns:
        parts = updates_in_blocks(events(), extent_of(facts), by_image=False)
        old_values = replace(old_values, stretches=stretches(*parts))
    rows, unsure = without_unsure(rows)
    found = pa.concat_tables([rows, of_the_log])
    if of_images and definitions.judge:
        judged_images = _images_of(events, files, of_images, definitions, max_per_guarantee)
        if judged_images.num_rows:
            judged_images = unrecorded(judged_images, Promises.read(facts, protocol=protocol))
            found = pa.concat_tables([found, judged_images])
    names = [name for name in (_MOVES, CHAIN) if pc.any(pc.equal(found["guarantee"], name)).as_py()]
    asked = asks_for_causes(found, facts)
    if names and are_explained(protocol) and asked != (explained is not None):
        others = found.filter(pc.invert(pc.is_in(found["guarantee"], pa.array(names))))
        again, _ = without_unsure(judged_rows(names, causes() if asked else None))
        found = pa.concat_tables([others, again])
    places = _places(found)
    keys = _keys_at(places, events()) if files is None else _keys_in_files(places, files, found)
    whole = in_order(_keyed(found, keys), max_per_guarantee)
    not_judged = chain_unjudged(facts, old_values, left_out, unsure) | _unjudged_images(facts, definitions, left_out)
    return Audited(whole, not_judged)


def tables_with_rows(facts: LogFacts) -> list[tuple[str, str]]:
    """Schema and table of each that has row changes; a table comes once for each place."""
    rows = facts.of_kind("row")
    return [(s or "", t or "") for s, t in zip(*[rows[c].to_pylist() for c in NAMES], strict=True)]


def chain_unjudged(facts: LogFacts, old_values: OldValues, left_out: LeftOut, n_unsure: int) -> dict[str, str]:
    """Why the chain of images cannot be judged, or not of all rows; ``n_unsure`` as of :func:`without_unsure`."""
    reasons = old_values.unjudged(n_unsure), left_out.reason(tables_with_rows(facts))
    return {CHAIN: "; ".join(filter(None, reasons))} if any(reasons) else {}


def judged_definitions(facts: LogFacts, protocol: str, left_out: LeftOut) -> Definitions:
    """Definitions from the log's DDL, without tables whose DDL a filter may leave out."""
    definitions = Definitions.read(facts, protocol=protocol).until(facts.lost_schemas)
    return definitions.without(left_out.undefined([name[1:] for name in definitions.tables]))


def without_unsure(found: pa.Table) -> tuple[pa.Table, int]:
    """Findings, and how many inserts find their row there where nothing shows inserts from updates."""
    is_unsure = pc.equal(found["guarantee"], UNSURE)
    return found.filter(pc.invert(is_unsure)), pc.sum(is_unsure).as_py() or 0


def _stretches(
    events: DataFrame, promises: DataFrame | pa.Table, extent: tuple[int, int], *, has_commit_ts: bool,
    files: StoredEvents | None,
) -> tuple[OffStretch, ...]:  # fmt: skip
    """Where inserts find their row there and no update lies between: two jobs, of a log that has some."""

    def judge(_: pa.Table, __: Promises) -> Judge:
        def there(s: Suspects) -> pa.RecordBatch:
            return in_blocks(s.c.commit_ts[inserts_of_rows_there(s).by], extent)

        return there

    inserts = judged(events, judge, EACH_DDL, beside=promises, has_commit_ts=has_commit_ts, files=files).toArrow()
    updates, _ = updates_in_blocks(events, extent, by_image=True)
    return stretches(updates, inserts.cast(EACH))


_NAMED = 3
"""Tables that a reason names."""


def _unjudged_images(facts: LogFacts, definitions: Definitions, left_out: LeftOut) -> dict[str, str]:
    """Why rows cannot be compared with their tables' definitions: all rows, or some tables' rows."""
    named = {*tables_with_rows(facts)}
    unknown = sorted(table_text(*name) for name in named if definitions.of_any(*name) is None)
    if not facts.carried & {"ddl", "definitions"}:
        return {}
    odd = definitions.not_understood
    some = f"{', '.join(unknown[:_NAMED])}{', ..' if len(unknown) > _NAMED else ''}"
    which = f"{len(unknown)} of {len(named)} tables with rows ({some})"
    filtered = f", or the changefeed's event filters leave DDL out of {'it' if len(unknown) == 1 else 'them'}"
    by_filter = filtered if left_out.undefined(sorted(named)) else ""
    why = f"the log has no DDL that defines {which}{by_filter}, so their rows are not judged" if unknown else ""
    if odd:
        few = f"{'; '.join(odd[:_NAMED])}{', ..' if len(odd) > _NAMED else ''}"
        ddl = f"{len(odd)} DDL {are(len(odd))} not understood ({few}), so rows of what "
        ddl += f"{'it names' if len(odd) == 1 else 'they name'} are not judged from there on"
        why = "; ".join(filter(None, (why, ddl)))
    if lost := facts.lost_schemas:
        files = f"{len(lost)} schema files are" if len(lost) > 1 else "a schema file is"
        which = f"{', '.join(of.path for of in lost[:_NAMED])}{', ..' if len(lost) > _NAMED else ''}"
        after = f"{files} missing ({which}), so rows of that table version and later ones are not judged"
        why = "; ".join(filter(None, (why, after)))
    reasons = dict.fromkeys((n for n, g in GUARANTEES.items() if g.image), why)
    for name, own in definitions.left_unjudged.items():
        reasons[name] = "; ".join(filter(None, (reasons.get(name, ""), own)))
    return {n: reason for n, reason in reasons.items() if reason}


def asks_for_causes(found: pa.Table, facts: LogFacts) -> bool:
    """Whether a rule of dispatch may explain some findings: rows move, or changes of rows do not chain in a topic
    with nothing but its first partition recorded, where no row is seen to move.
    """
    named = pc.unique(found["guarantee"]).to_pylist()
    partitions = Counter(topic for topic, _ in facts.homes if (topic, 0) in facts.homes)
    return _MOVES in named or (CHAIN in named and 1 in partitions.values())


def _held_twice(
    events: Callable[[], DataFrame], facts: LogFacts, quarantine: Callable[[], DataFrame] | None,
    refused: pa.Table | None,
) -> list[Twice]:  # fmt: skip
    """Looked for only where more messages came than there are offsets; a row change of a message is none of its own."""
    if refused is None and quarantine is not None:  # facts have the empty ones
        others = quarantine().where(f"coalesce(seq, 0) = 0 AND error_class <> '{EMPTY_MESSAGE}'")
        refused = held_offsets(others).toArrow()
    if not are_twice(facts.offsets if refused is None else ordered_offsets([facts.offsets, refused])):
        return []
    return held_twice(events(), None if quarantine is None else quarantine().where("coalesce(seq, 0) = 0"))


def found_in_facts(
    facts: LogFacts, names: Sequence[str], *, protocol: str, definitions: Definitions, twice: Sequence[Twice] = (),
    most: int | None = None,
) -> pa.Table:  # fmt: skip
    """What a log states besides its rows breaks of some guarantees, as :data:`ticdc_lab.audit.findings.FOUND`."""
    stated = Stated.read(facts, protocol=protocol, twice=twice, definitions=definitions)
    return pa.Table.from_batches(batches_of(found_in_log(apart(names)[2], stated, most=most), at_once=AT_ONCE), FOUND)


def found_in_changes(
    changes: Changes, names: Sequence[str], promises: Promises, *, causes: pa.Table | None, has_commit_ts: bool
) -> pa.Table:
    """What changes of rows, each row's together, break of some guarantees: as :func:`found_in_facts`.

    Of a log whose inserts may be updates, it also has :data:`UNSURE`.
    """
    odd = suspects(changes, promises, has_commit_ts=has_commit_ts) if len(changes) else None
    if odd is None:
        return FOUND.empty_table()
    judge = _judge_of(apart(names)[0], None if causes is None else Causes.read(causes, promises))
    return pa.Table.from_batches([judge(odd)], FOUND)


def are_explained(protocol: str) -> bool:
    """Whether a rule of dispatch may explain why a row is found in several partitions."""
    return protocol not in NOT_DISPATCHED


def in_order(found: pa.Table, most: int | None) -> pa.Table:
    """Findings of :data:`ticdc_lab.audit.findings.FOUND` with their keys, as an audit lists them."""
    order = [(c, "ascending", "at_start") for c in ORDER]
    whole = found.take(pc.sort_indices(found, order)).combine_chunks()
    kept = listed(most, FINDINGS.names)(iter(whole.to_batches()))
    return pa.Table.from_batches(kept, schema=pa.schema([found.schema.field(n) for n in FINDINGS.names]))


def apart(names: Sequence[str]) -> tuple[list[str], list[str], list[str]]:
    """Those about rows, those about their images, and those about the log."""
    of_rows = [n for n in names if GUARANTEES[n].row]
    of_images = [n for n in names if GUARANTEES[n].image]
    return of_rows, of_images, [n for n in names if GUARANTEES[n].log]


def rows_judged(
    events: DataFrame,
    names: list[str],
    promises: DataFrame | pa.Table,
    causes: DataFrame | pa.Table | None,
    most: int | None,
    *,
    has_commit_ts: bool,
    chunk: int = ROWS_AT_ONCE,
    files: StoredEvents | None = None,
) -> DataFrame:
    """What breaks some guarantees about rows (:func:`ticdc_lab.audit.history.judged`), at most so many of each."""
    beside = promises if causes is None else _with_causes(promises, causes, events.sparkSession)
    judge = _judge(names, explained=causes is not None, most=most)
    return judged(
        events, judge, FOUND_DDL, beside=beside, has_commit_ts=has_commit_ts, chunk=chunk, files=files,
        kept=None if most is None else few(most),
    )  # fmt: skip


_LEAVES = [f"{image}.list.element.{part}" for image in IMAGES for part in ("name", "value")]


def _images_of(
    events: Callable[[], DataFrame], files: StoredEvents | None, names: list[str], definitions: Definitions, most: int
) -> pa.Table:
    """What breaks guarantees in row changes beside their tables' definitions."""
    judge = few_of(judging_images(names, definitions), most)
    if files is None:
        return narrow_images(events()).mapInArrow(judge, FOUND_DDL).toArrow().cast(FOUND)
    near = None if files.again is None else unproved(files.again.noted, definitions)
    if near is not None and not len(near[0]):
        return FOUND.empty_table()
    return files.rows(READ, lambda rows: rows, _STORED_FORM, leaves=_LEAVES, near=near).found(judge, FOUND)


def few_of(kernel: Kernel, most: int) -> Kernel:
    """What of a kernel's findings may be listed."""
    kept = few(most)
    return lambda batches: kept(kernel(batches))


def narrow_images(events: DataFrame) -> DataFrame:
    """What of row changes their images are judged by: of each image the names and the values apart."""
    there = set(events.columns)
    own = [c if c in there else f"CAST(NULL AS string) AS {c}" for c in READ]
    parts = [
        f"transform({i}, c -> c.{part}) AS {i}_{part}" if i in there else f"CAST(NULL AS array<string>) AS {i}_{part}"
        for i in IMAGES
        for part in ("name", "value")
    ]
    return events.where("kind = 'row'").selectExpr(*own, *parts)


def _put_together(batch: pa.RecordBatch) -> pa.Table:
    """Row changes of :func:`narrow_images` with their images."""
    rows = pa.table(batch)
    for image in IMAGES if f"{IMAGES[0]}_name" in rows.column_names else ():
        names, values = (rows[f"{image}_{part}"].combine_chunks() for part in ("name", "value"))
        ends = np.append(0, np.cumsum(pc.fill_null(pc.list_value_length(names), 0).to_numpy())).astype(np.int32)
        parts = [pc.list_flatten(names), pc.list_flatten(values)]
        cells = pa.StructArray.from_arrays(parts, ["name", "value"])
        rows = rows.append_column(image, pa.ListArray.from_arrays(ends, cells))
    return rows


_TEXT = pa.dictionary(pa.int32(), pa.string())
_STORED_IMAGE = pa.list_(pa.struct([("name", _TEXT), ("value", pa.string())]))
_NUMBERED = {"partition": pa.int32(), "offset": pa.int64(), "seq": pa.int32(), "commit_ts": pa.int64()}
_STORED_FORM = pa.schema([(c, _NUMBERED.get(c, _TEXT)) for c in READ] + [(i, _STORED_IMAGE) for i in IMAGES])


def judging_images(names: list[str], definitions: Definitions) -> Kernel:
    """The kernel that judges row changes of :func:`narrow_images` beside their tables' definitions."""

    def run(batches: Batches) -> Batches:
        for batch in batches:
            if batch.num_rows:
                yield from _misfits(_put_together(batch), names, definitions).to_batches()

    return run


def _misfits(rows: pa.Table, names: list[str], definitions: Definitions) -> pa.Table:
    """What row changes break beside their tables' definitions."""
    own = defined_rows(rows, definitions)
    said = {n: check(own) for n in names if (check := GUARANTEES[n].image)}
    tables = [as_image_table(n, found, own) for n, found in said.items() if len(found.at)]
    return pa.concat_tables([FOUND.empty_table(), *tables]).combine_chunks()


def _with_causes(
    promises: DataFrame | pa.Table, causes: DataFrame | pa.Table, spark: SparkSession
) -> DataFrame | pa.Table:
    """Both in one, as a table where both are some that may be sent together."""
    if isinstance(causes, pa.Table):
        if isinstance(promises, pa.Table):
            both = pa.concat_tables([promises, causes], promote_options="default")
            if is_sent(both, lambda: spark):
                return both
        causes = spark.createDataFrame(causes)
    require_columns(causes, *NAMES, "cause", frame="causes")
    form = ", ".join(["promises binary", *[f"{c} {t}" for c, t in _CAUSES.items() if c in causes.columns]])
    said = causes.select(*[c for c in _CAUSES if c in causes.columns]).mapInArrow(_as(form), form)
    if isinstance(promises, pa.Table):
        promises = spark.createDataFrame(promises)
    return promises.mapInArrow(_as(form), form).unionAll(said)


def _as(form: str) -> Kernel:
    """Batches with all columns of a form, null where they have none."""
    schema = arrow_of(form)

    def run(batches: Batches) -> Batches:
        for batch in batches:
            have = set(batch.schema.names)
            columns = [batch[f.name].cast(f.type) if f.name in have else pa.nulls(len(batch), f.type) for f in schema]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    return run


def _judge(names: list[str], *, explained: bool, most: int | None) -> Callable[[pa.Table, Promises], Judge]:
    """What judges suspects, once the causes beside them are known."""

    def judge(beside: pa.Table, promises: Promises) -> Judge:
        known = Causes.read(beside.filter(pc.is_null(beside["promises"])), promises) if explained else None
        return _judge_of(names, known, most=most)

    return judge


def _judge_of(names: list[str], causes: Causes | None, *, most: int | None = None) -> Judge:
    def findings(s: Suspects) -> pa.RecordBatch:
        said = {n: check(s) for n in names if (check := GUARANTEES[n].row)}
        old_values = s.promises.old_values
        if CHAIN in names and (old_values.inserts_unsure or old_values.undecided):
            name = UNSURE if old_values.inserts_unsure else UNDECIDED
            said[name] = replace(inserts_of_rows_there(s), if_it_stays=None)
        explained = {n: causes.explain(f, s) if causes else f for n, f in said.items()}
        tables = [as_table(n, f, s, most=most) for n, f in explained.items() if len(f.at)]
        batches = pa.concat_tables(tables).combine_chunks().to_batches() if tables else []
        return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=FOUND)

    return findings


def found_in_log(names: list[str], stated: Stated, *, most: int | None = None) -> Iterator[Event]:
    """What breaks guarantees about the log: of each all findings, or the ``most`` first."""
    for name in names:
        if check := GUARANTEES[name].log:
            found = ({"guarantee": name} | one for one in check(stated))
            yield from found if most is None else first_of(found, most)


def _keys_at(places: pa.Table, events: DataFrame) -> Keys:
    """The keys of the rows at some places of a log."""
    if not places.num_rows:
        return {}
    low, high = pc.min_max(places["offset"]).as_py().values()
    near = events.where("kind = 'row'").where(F.col("offset").between(low, high)).select(*POSITION, "columns", "before")
    wanted = events.sparkSession.createDataFrame(places).toDF(*[f"_{c}" for c in POSITION])
    same = F.expr(" AND ".join(f"{c} <=> _{c}" for c in POSITION))
    of_each = near.join(F.broadcast(wanted), on=same).selectExpr(*POSITION, f"{KEY} AS key").toArrow().to_pylist()
    return _by_place((row, row["key"] or "") for row in of_each)


def _keys_in_files(places: pa.Table, files: StoredEvents, found: pa.Table) -> Keys:
    """The same of a log in files: only the images of row groups that have some of them are read.

    Of a log that is decoded again what few findings (``found``) name beside them is read, too: questions ask for it.
    """
    wanted = {tuple(place[c] for c in POSITION) for place in places.to_pylist()}
    if not wanted:
        return {}
    offsets = np.unique(places["offset"].to_numpy())
    shown = pc.struct_field(pc.list_flatten(found["evidence"]), "offset").drop_null().to_numpy()
    named = np.union1d(offsets, shown) if files.again is not None else offsets
    named = named if len(named) <= HELD else offsets

    def asked(rows: pa.Table) -> pa.Table:
        near = rows.filter(lie_in(rows["offset"], (offsets, offsets)))
        own = [r for r in near.to_pylist() if tuple(r[c] for c in POSITION) in wanted]
        return pa.Table.from_pylist(
            [
                {c: r[c] for c in POSITION} | {"key": key_of(r["columns"] if r["columns"] is not None else r["before"])}
                for r in own
            ],
            _OF_PLACE,
        )

    leaves = [f"{image}.list.element.{part}" for image in IMAGES for part in ("name", "value", "is_key")]
    read = files.rows(POSITION, asked, _OF_PLACE, leaves=leaves, near=(named, named))
    each = read.found(lambda rows: rows, _OF_PLACE).to_pylist()
    return _by_place((row, row["key"]) for row in each)


_OF_PLACE = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()),
                       ("seq", pa.int32()), ("key", pa.string())])  # fmt: skip


def _by_place(named: Iterable[tuple[Event, str]]) -> Keys:
    """Of a message that was recorded several times the least, so that no order is seen."""
    keys: Keys = {}
    for event, text in named:
        place = tuple(event[c] for c in POSITION)
        keys[place] = min(keys.get(place, text), text)
    return keys


def _keyed(found: pa.Table, keys: Keys) -> pa.Table:
    """Findings with the ``key`` of their rows."""
    places = zip(*[found[c].to_pylist() for c in POSITION], strict=True)
    about = _about_rows(found).to_pylist()
    of_each = [keys.get(place) or None if row else None for place, row in zip(places, about, strict=True)]
    return found.append_column("key", pa.array(of_each, pa.string()))


def _places(found: pa.Table) -> pa.Table:
    """Where the rows of findings lie, each once."""
    return found.filter(_about_rows(found)).select(POSITION).group_by(list(POSITION)).aggregate([])


def _about_rows(found: pa.Table) -> pa.ChunkedArray:
    """Whether a finding is about a row: neither about the log, nor the count of what is not listed."""
    return pc.and_(pc.is_valid(found["row_id"]), pc.is_valid(found["table"]))


def key_of(image: list[dict[str, Any]] | None) -> str:
    """The columns of an image's key as ``column=value``."""
    return ", ".join(f"{c['name']}={c['value']}" for c in image or () if c["is_key"] and c["value"] is not None)
