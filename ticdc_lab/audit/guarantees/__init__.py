"""What TiCDC guarantees of a topic: section 约束 of its MQ design, its Admin events, and its tables' definitions.

A guarantee is one function under its declaration (:class:`Guarantee`).
"""

from __future__ import annotations

from collections.abc import Collection

from ticdc_lab.audit.guarantees import images, marks, rows
from ticdc_lab.audit.guarantees.guarantee import DECLARED, Guarantee
from ticdc_lab.events.sample import Sample

GUARANTEES: dict[str, Guarantee] = {
    name: DECLARED[name] for module in (rows, marks, images) for name in vars(module) if name in DECLARED
}
"""Guarantees by name, the statement that is their function's name."""

WITHOUT_WATERMARKS = frozenset({"canal", "maxwell", "avro", "debezium-avro"})
"""Protocols that usually have no watermark messages."""


WITHOUT_DDL = frozenset({"avro", "debezium-avro"})
"""Protocols that usually have no DDL messages."""


WITHOUT_HISTORY = frozenset({"avro", "debezium-avro"})
"""Protocols that do not show what a change found: a row that a TRUNCATE or a delete took may be inserted again."""


_NO_HISTORY = {
    "debezium-avro": "debezium-avro has no DDL, and a TRUNCATE or ALTER TABLE changes what the next change finds"
}


def checks_possible(
    protocol: str,
    *,
    has_commit_ts: bool = True,
    sample: Sample | None = None,
    lost: Collection[str] = (),
    carried: Collection[str] = (),
    of_storage: bool = False,
) -> dict[str, str]:
    """List the guarantees that can be checked on a log.

    Parameters
    ----------
    protocol
        Wire protocol of the log.
    has_commit_ts
        False for canal-json without the TiDB extension, which has neither commit_ts nor watermarks.
    sample
        What of the log is looked at, None for all. A check that a sample alone could make fail is not possible on it.
        By tables or time a row keeps all its changes, or all of a stretch, so what is found there is true of the whole
        log; only that nothing was found proves less.

    lost
        What a dump of another tool does not have (:data:`ticdc_lab.sources.forms.LOSSES`).
    carried
        What the log has although its protocol need not (:attr:`ticdc_lab.facts.LogFacts.carried`): with
        ``avro-enable-watermark`` avro has DDL and watermarks, with ``avro-include-before-value`` images before.
    of_storage
        Whether a storage sink wrote it, whose streams share one checkpoint.

    Returns
    -------
    dict
        Per guarantee an empty text where it can be checked, else why not.

    Examples
    --------
    >>> checks_possible("avro")["nothing_below_resolved_ts"]
    'avro has no watermark messages'
    >>> checks_possible("canal-json", has_commit_ts=False)["first_appearances_are_ordered"]
    'this log has no commit_ts, so nothing orders its changes'
    """
    marked = has_commit_ts and (protocol not in WITHOUT_WATERMARKS or "watermark" in carried)
    some = sample is not None and not sample.is_whole
    of_partitions = sample is not None and sample.partitions is not None

    def reason(g: Guarantee) -> str:
        if "partition" in g.needs and "partition" in lost:
            return "the dump does not contain the partition of a message"
        if "offset" in g.needs and "offset" in lost:
            return "the dump has no offsets"
        if {"all messages", "history"} & set(g.needs) and "messages" in lost:
            return "the dump has only the messages that a page showed"
        if "commit_ts" in g.needs and not has_commit_ts:
            return "this log has no commit_ts, so nothing orders its changes"
        if "history" in g.needs and protocol in WITHOUT_HISTORY and not {"ddl", "before"} <= {*carried}:
            if "ddl" in carried:
                return f"this {protocol} log has no image before each update, and its deletes no commit_ts"
            return _NO_HISTORY.get(protocol, f"{protocol} has neither old images nor DDL, and its deletes no commit_ts")
        if "definitions" in g.needs and protocol in WITHOUT_DDL and "ddl" not in carried:
            return f"{protocol} has no DDL, so nothing defines its tables"
        if "all messages" in g.needs and some:
            return "a sample leaves messages out, so gaps in offsets prove nothing"
        if "all partitions" in g.needs and of_partitions:
            return "what happened to the row before may lie in a partition that the sample leaves out"
        return f"{protocol} has no watermark messages" if "watermarks" in g.needs and not marked else ""

    one = {"resolved_events_on_all_partitions": ONE_CHECKPOINT} if of_storage else {}
    return {name: reason(g) for name, g in GUARANTEES.items()} | one


ONE_CHECKPOINT = "a storage folder has one checkpoint for all its files"
