"""All guarantees on one log as a transform of events: no job is started here."""

from __future__ import annotations

import pickle
from collections.abc import Collection, Iterable
from functools import reduce
from itertools import chain

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ticdc_lab.audit.defined import Definitions
from ticdc_lab.audit.findings import FOUND, FOUND_DDL, ORDER, batches_of, listed, unrecorded
from ticdc_lab.audit.guarantees import GUARANTEES, checks_possible
from ticdc_lab.audit.history import ROWS_AT_ONCE
from ticdc_lab.audit.marks import NAMES, log_marks
from ticdc_lab.audit.run import (
    AT_ONCE,
    CHAIN,
    KEY,
    MAX_PER_GUARANTEE,
    UNDECIDED,
    UNSURE,
    apart,
    are_explained,
    few_of,
    found_in_log,
    judging_images,
    narrow_images,
    rows_judged,
)
from ticdc_lab.audit.stated import Stated
from ticdc_lab.engine.shuffle import Batches, Kernel, by_key_beside, in_one
from ticdc_lab.errors import ContractError, ProtocolError
from ticdc_lab.events import POSITION
from ticdc_lab.events.sample import Sample
from ticdc_lab.events.schema import FINDINGS, require_batch, require_columns

_NO_KEY = "CAST(NULL AS STRING) AS key"


def audit(
    events: DataFrame,
    *,
    protocol: str,
    has_commit_ts: bool = True,
    checks: Iterable[str] | None = None,
    max_per_guarantee: int | None = MAX_PER_GUARANTEE,
    causes: DataFrame | None = None,
    with_keys: bool = True,
    chunk: int = ROWS_AT_ONCE,
    sample: Sample | None = None,
    lost: Collection[str] = (),
    carried: Collection[str] = (),
    definitions: Definitions | None = None,
) -> DataFrame:
    """Check a recorded log against what TiCDC guarantees.

    Of ``offsets_are_contiguous`` it finds the holes; different messages at one offset, an error, are found by
    :func:`ticdc_lab.audit.run.audited` alone, also where ``checks`` names this guarantee. So are stretches in which old
    values are off: where an update without them looks like an insert, an insert of a row that is there is a finding
    that lists this as not judged.

    Parameters
    ----------
    events
        The events contract; with the hash columns (:data:`ticdc_lab.events.schema.KEYS` and
        :data:`ticdc_lab.events.schema.IMAGE_HASHES`, as ``load`` gives them) images are read only of rows in findings.
    protocol
        Wire protocol: what it does by design is no finding.
    has_commit_ts
        False for canal-json without the TiDB extension.
    checks
        Names from :data:`ticdc_lab.audit.GUARANTEES`; by default all that can be checked on such a log, see
        :func:`ticdc_lab.audit.checks_possible`.
    max_per_guarantee
        Most findings of one guarantee, errors first; one more, of severity info, counts those left out. None:
        all.
    causes
        ``schema_name, table_name, cause`` (string): one row per table whose rule moves rows between partitions; such
        moves are warnings. With ``topic`` too, a cause holds in that topic only. With ``partition, offset,
        seq`` besides, rows that have them name events that do not lie where the rule puts them: a move from or to one
        stays an error that names it; a table with a ``partition`` is dispatched over more than were recorded, up to
        that, and its broken chains are warnings, too. Without a cause, ``may_be`` names a rule that the log does not
        decide, and moves are warnings; ``tried`` names rules that were tried in vain. See
        :func:`ticdc_lab.dispatch.infer.move_causes`. Without it, and in
        :data:`ticdc_lab.audit.run.NOT_DISPATCHED`, moves are not explained.
    with_keys
        Look the rows' keys up in their images; False leaves ``key`` null and reads no image.
    chunk
        Changes of rows that a task judges at once; changes nothing but its memory.
    sample
        What of the log ``events`` hold (:meth:`ticdc_lab.sources.change_log.ChangeLog.sampled`); what it alone could
        make fail is not checked.
    lost
        What a dump does not have; what cannot be judged without it is not checked.
    carried
        As for :func:`ticdc_lab.audit.checks_possible`.
    definitions
        Of the log's tables, by which images are judged; by default those that the DDL in ``events`` make.

    Returns
    -------
    DataFrame
        :data:`ticdc_lab.events.schema.FINDINGS`, in a fixed order: guarantee, severity, topic, partition, offset.

    Raises
    ------
    ProtocolError
        A named check is not possible on such a log; the message has the reason.
    ContractError
        A column is missing, or no such check exists.
    StreamingError
        ``events`` is a stream.

    Notes
    -----
    One pass over the log gathers what it states besides its rows (:mod:`ticdc_lab.audit.stated`), one shuffle by row
    judges them (:mod:`ticdc_lab.audit.history`), and one more pass looks up the keys of rows in findings.

    References
    ----------
    Design "TiCDC MQ (Kafka) Protocol", section 约束.

    Examples
    --------
    >>> found = log.events.transform(audit, protocol="canal-json", checks=["watermarks_are_monotone"])
    >>> found.count()
    0
    """
    require_columns(events, "kind", "commit_ts", "op", "query", *NAMES, *POSITION)
    require_batch(events, function="audit", why="a row may change again at any later offset")
    possible = checks_possible(protocol, has_commit_ts=has_commit_ts, sample=sample, lost=lost, carried=carried)
    names = _chosen(checks, possible)
    of_rows, of_images, of_log = apart(names)
    marks = log_marks(events, protocol=protocol, sample=sample)
    causes = causes if are_explained(protocol) else None
    found: list[DataFrame] = []
    of_changes: list[DataFrame] = []
    if of_rows:
        of_changes.append(
            rows_judged(
                events, of_rows, marks.select("promises"), causes, max_per_guarantee, has_commit_ts=has_commit_ts,
                chunk=chunk,
            )
        )  # fmt: skip
    if of_images:
        of_changes.append(_images_judged(events, of_images, marks, protocol, max_per_guarantee, definitions))
    if of_changes:
        rows = reduce(DataFrame.unionAll, of_changes).where(F.col("guarantee") != UNSURE)
        of_chain = F.col("guarantee") == UNDECIDED
        rows = rows.withColumn("guarantee", F.when(of_chain, CHAIN).otherwise(F.col("guarantee")))
        if with_keys:
            rows = in_one(rows, listed(max_per_guarantee, FOUND.names), FOUND_DDL, order=ORDER)
        found.append(_with_row_keys(rows, events) if with_keys else rows.selectExpr("*", _NO_KEY))
    if of_log:

        def judge(batches: Batches) -> Batches:
            for facts in chain.from_iterable(b["facts"] for b in batches):
                stated = Stated.read(pickle.loads(facts.as_py()), protocol=protocol)
                yield from batches_of(found_in_log(of_log, stated), at_once=AT_ONCE)

        found.append(marks.select("facts").mapInArrow(judge, FOUND_DDL).selectExpr("*", _NO_KEY))
    whole = reduce(DataFrame.unionAll, found)
    return in_one(whole, listed(max_per_guarantee, FINDINGS.names), FINDINGS, order=(*ORDER, "key"))


def _images_judged(
    events: DataFrame, names: list[str], marks: DataFrame, protocol: str, most: int | None, given: Definitions | None
) -> DataFrame:
    """The same as a transform: definitions are gathered where images are judged, if it is not given."""

    def kernel(beside: pa.Table) -> Kernel:
        (facts,), (promises,) = (beside[c].drop_null().to_pylist() for c in ("facts", "promises"))
        definitions = given or Definitions.read(pickle.loads(facts), protocol=protocol)
        judge, binding = judging_images(names, definitions), pickle.loads(promises)

        def run(batches: Batches) -> Batches:
            for batch in judge(batches):
                yield from unrecorded(pa.Table.from_batches([batch]), binding).to_batches()

        return run if most is None else few_of(run, most)

    return by_key_beside(narrow_images(events), "offset", kernel, FOUND_DDL, beside=marks.select("facts", "promises"))


def _with_row_keys(found: DataFrame, events: DataFrame) -> DataFrame:
    """Add the row's key as ``column=value``; the only place that reads images, and only where there are findings."""
    named = found.toDF(*[f"_{c}" for c in FOUND.names])
    rows = events.where("kind = 'row'").select(*POSITION, "columns", "before")
    same = F.expr(" AND ".join(f"{c} <=> _{c}" for c in POSITION))
    # after the join: the key of a row in no finding would cost more than all else
    wanted = (*[f"_{c}" for c in FOUND.names], f"CASE WHEN _table IS NOT NULL THEN nullif({KEY}, '') END")
    return rows.join(F.broadcast(named), on=same).selectExpr(*wanted).toDF(*FOUND.names, "key")


def _chosen(checks: Iterable[str] | None, possible: dict[str, str]) -> list[str]:
    if checks is None:
        return [n for n, why in possible.items() if not why]
    names = list(dict.fromkeys(checks))
    unknown = [n for n in names if n not in GUARANTEES]
    if unknown or not names:
        raise ContractError(
            f"No such check: {unknown}; there are {list(GUARANTEES)}.",
            hint="Leave `checks` out to run all that are possible.",
        )
    for n in names:
        if possible[n]:
            raise ProtocolError(
                f"{n} cannot be checked: {possible[n]}.",
                hint="Audit the whole log: ticdc-lab audit SOURCE, or record the topic with a protocol that has it.",
            )
    return names
