"""From a log to the report file."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import copy_context
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

from ticdc_lab.answers import Answer
from ticdc_lab.answers.summary import Summary
from ticdc_lab.audit.contradicted import with_rules_noted
from ticdc_lab.engine.running import beside, may_fork
from ticdc_lab.errors import TiCDCLabError
from ticdc_lab.errors.whole_files import write_whole
from ticdc_lab.log import Log
from ticdc_lab.report.page import made_of, page
from ticdc_lab.report.runs import name_of
from ticdc_lab.report.sections import lead, sections
from ticdc_lab.sources.change_log import ChangeLog
from ticdc_lab.sources.provenance import Provenance, provenance


def report(log: ChangeLog | Log, out: str | Path, *, settings: Mapping[str, object] = MappingProxyType({})) -> Path:
    """Write what a log has, how far it is complete, and what another dispatcher and consumers would do, as one file.

    Parameters
    ----------
    log
        A loaded or opened log; one that is not materialised is decoded once into a temporary folder beside ``out``,
        which is removed.
    out
        The file to write; its folder is made.
    settings
        The report's last section on how it was made, beside versions and inputs; secrets are hidden.

    Returns
    -------
    Path
        ``out``. The file needs no network: plotly.js is inside, once. The same log gives the same bytes.

    Notes
    -----
    Only aggregates reach the driver, see :mod:`ticdc_lab.answers.summary`.
    """
    target = Path(out)
    target.parent.mkdir(parents=True, exist_ok=True)
    with decoded_once(log.change_log if isinstance(log, Log) else log, target.parent) as whole:
        write_whole(target, summary_and_page(whole, settings)[1])
    return target


@contextmanager
def decoded_once(log: ChangeLog, beside: Path) -> Iterator[ChangeLog]:
    """The log itself if it is materialised, else decoded into a temporary folder."""
    if log.counts is not None:
        yield log
        return
    with tempfile.TemporaryDirectory(prefix=".ticdc-lab-", dir=beside) as folder:
        yield with_rules_noted(log.materialise(str(Path(folder).resolve() / "decoded")))


def summary_and_page(
    log: ChangeLog, settings: Mapping[str, object] = MappingProxyType({}), *, title: str = "", back: str = ""
) -> tuple[Summary, str]:
    """What a materialised log amounts to, and its page."""
    chosen = {} if log.sample is None else {k: v for k, v in asdict(log.sample).items() if v not in (None, ())}
    made_from = provenance(log, settings={**settings, **({"sample": chosen} if chosen else {})})
    with tempfile.TemporaryDirectory(prefix="ticdc_lab-report-") as folder:
        asked = Log(log, folder)
        with _answers_of_dispatch(asked) as of_dispatch:
            audited = asked.summary_of("facts", "findings", "messages", "suspects")
            found = {name: getattr(audited, name) for name in ("findings", "messages", "unjudged", "suspects")}
            summary = replace(asked.summary, **found)
            consumers = asked.consumers()
            why = asked.why() if asked.has_commit_ts else None
            _ = consumers.figures  # drawn before what is computed beside it is waited for
            answers = of_dispatch()
        page = render(summary, why=why, consumers=consumers, **answers, made_from=made_from, title=title, back=back)
    return summary, page


SMALL = 20_000
"""Events of a log about whose dispatch a report asks beside its other questions, which an interrupt waits for."""

Answers = Mapping[str, Answer | None]


@contextmanager
def _answers_of_dispatch(asked: Log) -> Iterator[Callable[[], Answers]]:
    """The answers that need the rules of dispatch, by their name in :func:`render`, once they are asked for."""

    def answers(partitions: Callable[[], Answer] = asked.partitions) -> Answers:
        found: dict[str, Answer | None] = {}
        with suppress(TiCDCLabError):  # a log without row changes, or commit_ts: the what-if reports it
            found["advice"] = asked.advise()  # first: it measures what the what-if shows
            found["partitions"] = partitions()
        return found | {"what_if": asked.what_if(), "settings": asked.settings()}

    def drawn() -> Answers:
        """To be pickled: with the pictures that the report shows."""
        found = answers()
        shows = {"what_if"}
        return {
            n: a and replace(a, draw=partial(dict, dict(a.figures) if n in shows else {})) for n, a in found.items()
        }

    counts, spark = asked.change_log.counts, asked.change_log.spark
    if counts is None or counts.events > SMALL:
        yield answers
    elif may_fork(spark):
        with beside(drawn) as given:
            yield given
    else:  # two wait for the engine, the third computes
        with ThreadPoolExecutor(2) as pool:
            partitions = pool.submit(copy_context().run, asked.partitions).result
            yield pool.submit(copy_context().run, answers, partitions).result


def render(
    summary: Summary, *, why: Answer | None = None, what_if: Answer | None = None, advice: Answer | None = None,
    partitions: Answer | None = None, consumers: Answer | None = None, settings: Answer | None = None,
    made_from: Provenance | None = None, title: str = "", back: str = "",
) -> str:  # fmt: skip
    """Build the HTML text of a report from small frames; pure."""
    parts = sections(
        summary,
        why=why,
        what_if=what_if,
        advice=advice,
        partitions=partitions,
        consumers=consumers,
        settings=settings,
    )
    parts += [made_of(made_from)] if made_from is not None else []
    return page(title or name_of(summary.source), lead=lead(summary), sections=parts, back=back)
