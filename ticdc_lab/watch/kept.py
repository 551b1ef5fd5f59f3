"""Findings as a watch keeps them: each has a number and a status, and is the same one however often it is found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from ticdc_lab.audit import GUARANTEES
from ticdc_lab.audit.findings import FOUND
from ticdc_lab.events.arrays import NO_TS
from ticdc_lab.settings import MATCH, Contradiction

PENDING, OPEN, IGNORED, RESOLVED, WITHDRAWN = STATUSES = "pending", "open", "ignored", "resolved", "withdrawn"
"""A finding is pending until nothing has explained it for as long as findings settle; then it is open, until a user
ignores or resolves it. One that later messages explain is withdrawn.
"""

_AT_ONCE = frozenset(name for name, g in GUARANTEES.items() if g.at_once)
_OF_WATERMARKS = frozenset(name for name, g in GUARANTEES.items() if g.of_watermarks)

Identity = tuple[Any, ...]
_WHO = ("guarantee", "severity", "table", "commit_ts", "topic", "partition", "offset", "seq", "row_id")


@dataclass(frozen=True, slots=True)
class KeptFinding:
    """A finding with its number."""

    number: int  # from 1, in the order in which they were found; never given twice in a state folder
    status: str  # one of :data:`STATUSES`
    # ``guarantee``, ``severity``, ``table``, ``key``, ``commit_ts``, ``topic``, ``partition``, ``offset``, ``seq``,
    # ``message``, ``evidence``, ``cause``: as of :data:`ticdc_lab.events.schema.FINDINGS`; ``evidence`` are
    # dictionaries of partition, offset, commit_ts.
    guarantee: str
    severity: str
    message: str
    table: str | None = None
    key: str | None = None
    commit_ts: int | None = None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    seq: int | None = None
    row_id: int | None = None  # identifies rows; None for what is about the log
    evidence: tuple[Mapping[str, int | None], ...] = ()
    # ``found_s``, ``changed_s``: when it was found, and when its status changed, seconds since 1970.
    found_s: float = 0.0
    changed_s: float = 0.0
    cause: str | None = None

    @property
    def identity(self) -> Identity:
        """What is the same each time it is found."""
        said = (self.cause or self.message) if self.guarantee == MATCH else None
        return (*[getattr(self, name) for name in _WHO], said)

    def as_dict(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self) | {"evidence": [dict(e) for e in self.evidence]}

    @classmethod
    def from_dict(cls, told: Mapping[str, Any]) -> KeptFinding:
        """Read what :meth:`as_dict` gave."""
        return cls(**dict(told) | {"evidence": tuple(told["evidence"])})


def found_again(
    kept: Mapping[int, KeptFinding], found: Iterable[Mapping[str, Any]], *, now_s: float, settle_s: float,
    final: bool = False, judged: Container[int] | None = None, closed_ts: int = NO_TS,
) -> tuple[dict[int, KeptFinding], Counter[tuple[str, str]]]:  # fmt: skip
    """What is kept after another look, and how many of each guarantee and severity are found and not kept.

    ``kept``: by number. ``found``: rows of :data:`ticdc_lab.audit.findings.FOUND`: all that is found now. ``now_s``:
    seconds since 1970. ``settle_s``: so long a finding is pending, unless its guarantee is ``at_once``.
    ``final``: the log ends here, so nothing can explain what is pending. ``judged``: the rows that were judged: what
    was found of others stays as it was; None for all. ``closed_ts``: what was found of watermarks up to this one stays
    as it was, and what is new of them does not count.
    """
    after, by_identity = dict(kept), {f.identity: f for f in kept.values()}
    seen, number, beyond = set[int](), max(kept, default=0), Counter[tuple[str, str]]()
    of_each = Counter(f.guarantee for f in kept.values() if f.status in (PENDING, OPEN))
    for row in found:
        one = KeptFinding(
            0, PENDING, row["guarantee"], row["severity"], row["message"], row["table"], None, row["commit_ts"],
            row["topic"], row["partition"], row["offset"], row["seq"], row["row_id"], tuple(row["evidence"] or ()),
            now_s, now_s, row["cause"],
        )  # fmt: skip
        before = by_identity.get(one.identity)
        if before is None and _is_closed(one, closed_ts):
            continue
        if before is None and of_each[one.guarantee] >= KEPT_OF_EACH:
            beyond[one.guarantee, one.severity] += 1
            continue
        if before is None:
            number += 1
            of_each[one.guarantee] += 1
            before = replace(one, number=number)
        elif before.status == WITHDRAWN:
            before = replace(before, status=PENDING, found_s=now_s, changed_s=now_s)
        since_s = min(before.found_s, now_s)  # a clock that was set back lets nothing wait for longer
        before = replace(before, message=one.message, cause=one.cause, evidence=one.evidence, found_s=since_s)
        if before.status == PENDING and (final or row["guarantee"] in _AT_ONCE or now_s - before.found_s >= settle_s):
            before = replace(before, status=OPEN, changed_s=now_s)
        after[before.number] = before
        seen.add(before.number)
    for number, one in after.items():
        was_judged = one.row_id is None or judged is None or one.row_id in judged
        if number not in seen and one.status in (PENDING, OPEN) and was_judged and not _is_closed(one, closed_ts):
            after[number] = replace(one, status=WITHDRAWN, changed_s=now_s)
    aside = [number for number, f in after.items() if f.status not in (PENDING, OPEN) and number not in seen]
    for number in aside[: max(0, len(aside) - ASIDE)]:
        del after[number]
    return after, beyond


def contradiction(c: Contradiction) -> dict[str, Any]:
    """What was given of the changefeed and the log shows otherwise, as a row of
    :data:`ticdc_lab.audit.findings.FOUND`.
    """
    return dict.fromkeys(FOUND.names) | {
        "guarantee": MATCH, "severity": "warning", "message": c.words, "evidence": c.shows,
        "cause": f"{c.given.name}: {c.cause}" if c.cause else None,
    }  # fmt: skip


def _is_closed(finding: KeptFinding, ts: int) -> bool:
    return finding.guarantee in _OF_WATERMARKS and finding.commit_ts is not None and finding.commit_ts <= ts


ASIDE = 1_000
"""Findings that are withdrawn, ignored or resolved, not found any more, and stay listed: the last ones."""

KEPT_OF_EACH = 1_000
"""Findings of a guarantee that are kept while they are pending or open; more are counted."""
