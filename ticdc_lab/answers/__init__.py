"""Questions about a log, each a pure function from small frames to an :class:`Answer`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ticdc_lab.lazily import lazily

if TYPE_CHECKING:
    from ticdc_lab.answers.advice import advice, expansion, partitions
    from ticdc_lab.answers.answer import Answer
    from ticdc_lab.answers.audit import audit, finding
    from ticdc_lab.answers.cdc_log import beside_cdc_log
    from ticdc_lab.answers.compared import compared, fidelity, not_compared, replayed
    from ticdc_lab.answers.consumers import consumers, not_ordered
    from ticdc_lab.answers.dispatching import moved, produced
    from ticdc_lab.answers.rows import against_definition, messages, row, table, transaction
    from ticdc_lab.answers.settings import settings
    from ticdc_lab.answers.transactions import transactions
    from ticdc_lab.answers.watermarks import complete_to, stalls, watermarks
    from ticdc_lab.answers.what_if import OF_STORAGE, PARTITIONS, not_measured, rules, what_if, without_partitions
    from ticdc_lab.answers.what_it_holds import contents, holds, load, surveyed

__all__ = [
    "OF_STORAGE",
    "PARTITIONS",
    "Answer",
    "advice",
    "against_definition",
    "audit",
    "beside_cdc_log",
    "compared",
    "complete_to",
    "consumers",
    "contents",
    "expansion",
    "fidelity",
    "finding",
    "holds",
    "load",
    "messages",
    "moved",
    "not_compared",
    "not_measured",
    "not_ordered",
    "partitions",
    "produced",
    "replayed",
    "row",
    "rules",
    "settings",
    "stalls",
    "surveyed",
    "table",
    "transaction",
    "transactions",
    "watermarks",
    "what_if",
    "without_partitions",
]

lazily(__name__, __all__)
