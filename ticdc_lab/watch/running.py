"""A watch on the desk: it reads a source, takes steps, keeps what it finds, and can be looked at while it runs."""

from __future__ import annotations

import ctypes
import mmap
import threading
import time
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ticdc_lab.audit.contradicted import reads_images
from ticdc_lab.audit.run import CHAIN
from ticdc_lab.codecs.decode import decoder
from ticdc_lab.codecs.detection import Detected, other_protocol
from ticdc_lab.codecs.kernel.arrow import arrow_schema
from ticdc_lab.errors import NoAnswerError, NoTopicError, SourceError
from ticdc_lab.errors.redaction import shown_source
from ticdc_lab.events.arrays import NO_TS
from ticdc_lab.events.schema import MESSAGES
from ticdc_lab.facts import LogFacts
from ticdc_lab.facts.limits import without_files
from ticdc_lab.settings import Setting, Settings
from ticdc_lab.settings.file import given_settings
from ticdc_lab.sources.kafka_reading import Place
from ticdc_lab.sources.learned import known_of
from ticdc_lab.sources.load import SAMPLE
from ticdc_lab.watch.folder import WatchFolder, WatchProgress
from ticdc_lab.watch.kept import OPEN, PENDING, WITHDRAWN, KeptFinding, contradiction, found_again
from ticdc_lab.watch.metrics import DURATIONS_S, PartitionView, WatchSample, WatchView
from ticdc_lab.watch.recorded import RecordedTopic
from ticdc_lab.watch.silences import Silences
from ticdc_lab.watch.sources import FORM, Decoding, LiveTopic, messages_of, no_data_file, opened, with_schemas
from ticdc_lab.watch.state import NO_OLD_VALUE, WatchCounts, Watched, WatchState, absorbed, audited_so_far
from ticdc_lab.watch.storage import ReadFile, StorageFolder, folder_of

ROWS_AT_ONCE, BYTES_AT_ONCE = 20_000, 4 << 20
"""Messages of a step, and their bytes, about: a message may have many rows, and their events take memory meanwhile."""

STEP_S, JUDGE_S, COMMIT_S, LOOK_S = 0.5, 1.0, 5.0, 30.0
"""A step takes what came in so long; findings are looked for, a commit is made, the broker is asked after so long."""

EVIDENCE, EVIDENCE_AT_ONCE, EVIDENCE_S = 1_000, 200, 30 * 86_400.0
"""Findings whose messages are kept, of a guarantee at a time, and for how long if they are not open any more."""

STRANGERS = 64
"""Messages of a step that cannot be decoded, among which another protocol is looked for."""

HISTORY, LAST_EVENTS = 900, 20
"""Samples and events that are kept to be looked at."""
_SHOWN = ["topic", "partition", "offset", "kind", "op", "schema_name", "table_name", "commit_ts", "error_class"]

RETRY_S, RETURNS = 30.0, 3
"""A source that does not answer is asked again after so long; a broker that returns may not know its topics yet, and is
asked for them so often less one.
"""


class Watch:
    """A watch of a source, with a state folder of its own.

    ``source``: ``kafka://HOST:PORT/TOPIC``, or a recording. ``state``: the folder; a watch that ended, in any way,
    resumes at its last commit. ``once``: read up to the end of now, judge, and end. ``settle_s``: so long a
    finding that later messages may explain is pending. ``memory``: bytes that the state may take. ``keep_s``: so long
    before the resolved_ts changes of rows are kept, to detect what is delivered again. ``changefeed``: what is known of
    the changefeed's settings. ``protocol``, ``schema_registry``, ``claim_check``, ``options``: as of
    :func:`ticdc_lab.load`. ``speed``: of a recording: how many times as fast as it was recorded; None as fast as it can
    be read. ``follow``: wait for what is appended to a recording. ``opens``: is given the findings that have just
    become open, in each look: often none; gives how many are not sent yet. ``said``: takes a sentence when the source
    stops answering, and when it answers again. ``now``: seconds since 1970. ``view``: how
    far it is, as of :class:`ticdc_lab.watch.metrics.WatchView`. ``findings``: what is kept, by number. ``history``: a
    sample (:class:`ticdc_lab.watch.metrics.WatchSample`) of each look, about one a second, of the last ones.
    ``last_events``: the events of the last messages: position, ``kind``, ``op``, names and ``commit_ts``; None before
    the first. Raises SourceError: another watch writes the folder, or it holds the state of another source or version.
    """

    def __init__(
        self, source: str, state: str, *, once: bool = False, settle_s: float = 300.0, memory: int = 1 << 30,
        keep_s: float = 3600.0, changefeed: Settings | None = None, protocol: str = "auto",
        schema_registry: str | None = None, claim_check: str | None = None, options: Mapping[str, str] | None = None,
        speed: float | None = None, follow: bool = False,
        opens: Callable[[list[KeptFinding]], int | None] = lambda _: None, said: Callable[[str], None] = lambda _: None,
        now: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        given = (changefeed or Settings()) | given_settings(options or {})
        self._source = opened(source, options or {}, speed=speed, follow=follow, changefeed=given)
        if isinstance(self._source, StorageFolder):
            self._source.images = reads_images(given)
        self.source, self.state = shown_source(source), state
        self._folder = WatchFolder(state)
        self._once, self._settle_s, self._memory, self._keep_s = once, settle_s, memory, keep_s
        self._known = replace(known_of(schema_registry, claim_check), settings=given)
        self._protocol, self._opens, self._said, self._now = protocol, opens, said, now
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._failed: BaseException | None = None
        self.findings: dict[int, KeptFinding] = self._folder.findings()
        self.view = self._seen_before()
        self.history = deque[WatchSample](maxlen=HISTORY)
        self.last_events: pa.Table | None = None
        self._changed, self._found, self._dirty = set[int](), list[Mapping[str, Any]](), True
        self._unjudged, self._unsure, self._notes = dict[str, str](), 0, tuple[str, ...]()
        self._verified = tuple[Setting, ...]()
        self._undocumented, self._unsent = set[int](), 0
        self._strangers: dict[str, int] = {}
        self._violations: dict[tuple[str, str], int] = {}
        self._tidied_s = 0.0
        self._beyond: dict[tuple[str, str], int] = {}
        self._lost: dict[Place, int] = {}
        self._marked_ms: dict[Place, int] = {}
        self._positions: dict[Place, int] = {}
        self._firsts: dict[Place, int] = {}
        self._looked_ends: dict[Place, int] = {}
        self._silences = Silences(said)
        self._ids: dict[str, str] = {}
        self._counts, self._state = WatchCounts(), WatchState()
        self._watched = Watched("")
        self._decoding: Decoding | None = None
        self._on_spark: dict[str, Any] | None = None

    def _seen_before(self) -> WatchView:
        """What the last commit counted: for Prometheus a counter that begins at zero again, and rises, is a fault."""
        saved = self._folder.progress
        if saved is None:
            return WatchView(source=self.source)
        partitions = {
            at: PartitionView(read, watermark_ms=saved.watermark_ms.get(at), lost=saved.lost.get(at, 0))
            for at, read in saved.positions.items()
        }
        return WatchView(
            self.source, saved.protocol, saved.counts, partitions, violations=_sum_of(saved.violations, saved.beyond),
            open=_open_among(self.findings.values()), strangers=saved.strangers,
        )  # fmt: skip

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._quietly, name="ticdc-lab-watch", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _quietly(self) -> None:
        try:
            self.run()
        except BaseException as error:
            self._failed = error

    def stop(self) -> None:
        """End it after the step that is under way; what it failed with is raised."""
        self._stop.set()
        self.wait()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for its end; whether it has ended. What it failed with is raised."""
        if self._thread is not None:
            self._thread.join(timeout_s)
        if self._failed is not None:
            raise self._failed
        return self._thread is None or not self._thread.is_alive()

    @property
    def failure(self) -> str | None:
        """What it failed with in the background; None if it did not."""
        return None if self._failed is None else str(self._failed) or type(self._failed).__name__

    def run(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """Watch until it is stopped, or, of what ends, to the end.

        Raises SourceError: the source cannot be read, or is not the one that the state is of; no space is left.
        ProtocolError: its protocol cannot be detected, or differs from the state's.
        """
        returns = 0
        try:
            begun = self._begun(stopped)
            while begun and not self._ended(stopped):
                try:
                    if self._follow(stopped):
                        break
                except SourceError as error:
                    silent, no_topic = isinstance(error, NoAnswerError), isinstance(error, NoTopicError)
                    returns = (returns if self.view.trouble and not silent else RETURNS) - no_topic
                    if self._once or not self._source.grows or not (silent or (no_topic and returns)):
                        self._show_trouble(f"The watch ended: {error.message}")
                        raise
                    if not self.view.trouble:
                        self._said(f"{error.message} It is asked again every {RETRY_S:.0f} s.")
                    self._show_trouble(f"{error.message} It is asked again every {RETRY_S:.0f} s.")
                    until = time.monotonic() + RETRY_S
                    while not self._ended(stopped) and time.monotonic() < until:
                        self._stop.wait(STEP_S)
                    if self._ended(stopped):
                        self._show_trouble(error.message)
        finally:
            self._source.close()
            self._folder.close()

    def _show_trouble(self, why: str) -> None:
        """Show why nothing is read, beside what was committed last."""
        view = replace(self.view, trouble=why, caught_up=self.view.caught_up and not why)
        with suppress(SourceError):  # the folder cannot be written: what ends the watch names it
            self._folder.show(shown_as_json(view))
        self.view = view

    def _answers(self) -> None:
        """Report that the source answers, if it did not before."""
        if self.view.trouble:
            self._said(f"{self.source} answers again.")
            self._show_trouble("")

    def _ended(self, stopped: Callable[[], bool]) -> bool:
        return self._stop.is_set() or stopped()

    def _begun(self, stopped: Callable[[], bool]) -> bool:
        """Load the state, or begin one; False if it was stopped before there was a message."""
        saved, self._ids = self._folder.progress, self._source.ids()
        if saved is not None:
            _require_same(saved, self.source, self._ids, self._folder)
            self._ids = {**saved.ids, **self._ids}
            self._known = with_schemas(self._known, saved.decoding)  # for detection, too
            if (saved.spark is None) != (self._on_spark is None):
                engine = "embedded" if saved.spark is None else "spark"
                raise SourceError(
                    f"{self._folder.folder} has the state of a watch with the engine {engine}.",
                    hint=f"Resume it with --engine {engine}, or name another folder: --state OTHER",
                )
        protocol = self._protocol if saved is None else saved.protocol
        while (decoding := self._detected(saved, protocol)) is None:
            if self._ended(stopped) or self._stop.wait(STEP_S):
                return False
        if saved is not None:
            told = Detected(saved.protocol, saved.has_commit_ts)
            known = replace(decoding.known, settings=self._known.settings)
            decoding = Decoding.resumed(told, known, saved.decoding, self._folder.waiting())
            self._counts, self._unsure = saved.counts, saved.unsure
            self._violations, self._beyond = dict(saved.violations), dict(saved.beyond)
            self._positions, self._lost = dict(saved.positions), dict(saved.lost)
            self._marked_ms, self._strangers = dict(saved.watermark_ms), dict(saved.strangers)
            self._state = self._folder.state(dated=saved.has_commit_ts)
        told = decoding.told
        self._decoding = decoding
        if isinstance(self._source, StorageFolder):
            self._source.learns = decoding.handles_with
        self._watched = Watched(
            told.protocol, told.has_commit_ts, decoding.known.settings, self._memory, int(self._keep_s * 1000),
            is_folder=isinstance(self._source, StorageFolder),
            lost=self._source.losses if isinstance(self._source, RecordedTopic) else frozenset(),
        )  # fmt: skip
        return True

    def _detected(self, saved: WatchProgress | None, protocol: str) -> Decoding | None:
        """How messages are decoded; None while a source that grows has none."""
        source = self._source
        if saved is not None and not isinstance(source, LiveTopic | StorageFolder):
            source.resume(saved.read)
        if not isinstance(source, StorageFolder):
            sample = source.first(SAMPLE)
            if source.grows and not self._once and protocol == "auto" and not sample.num_rows:
                return None
            return Decoding.detected(source.name, sample, self._known, protocol=protocol)
        if saved is not None:
            source.resume(saved.read, self._folder.files())
            return Decoding(Detected(saved.protocol, saved.has_commit_ts), self._known)
        decoding = Decoding.of_folder(source, self._known, protocol=protocol)
        if decoding is None and self._once:
            raise no_data_file(source.name)
        return decoding

    def _follow(self, stopped: Callable[[], bool]) -> bool:
        """Read on; False where partitions were added, so that reading restarts with them."""
        before, held, refused = dict(self._lost), list[pa.RecordBatch](), list[pa.RecordBatch]()
        clock = time.monotonic
        stepped = judged = committed = clock()
        looked, pause_s = -LOOK_S, JUDGE_S
        for messages, bad in self._source.batches(self._positions, once=self._once):
            at = clock()
            self._answers()
            if messages.num_rows:
                held.append(messages)
            elif not held:  # behind what was taken: what is not yet would be skipped if reading fails
                self._positions = dict(self._source.positions)
            if bad is not None and bad.num_rows:
                refused.append(bad)
            is_much = sum(map(len, held)) >= ROWS_AT_ONCE or sum(b.nbytes for b in held) >= BYTES_AT_ONCE
            # what is no message has no offset by which it would be read again
            if (held or refused) and (is_much or refused or not messages.num_rows or at - stepped > STEP_S):
                self._step(held, refused)
                held, refused, stepped = [], [], clock()
            self._lost = {p: before.get(p, 0) + self._source.lost.get(p, 0) for p in {*before, *self._source.lost}}
            for gone in self._source.newly_deleted() if isinstance(self._source, LiveTopic) else ():
                self._state = self._state.with_deleted(gone.place, (gone.first, gone.end))
            if clock() - judged > pause_s:
                begun = clock()
                self._judge()
                judged = clock()
                pause_s = max(JUDGE_S, 4 * (judged - begun))
            if clock() - committed > COMMIT_S and not held:
                self._commit()
                committed = clock()
            if self._ended(stopped):
                break
            if at - looked > LOOK_S:
                added, looked = self._look(), at
                if added and not self._once:
                    self._step(held, refused)
                    self._commit()
                    return False
        self._step(held, refused, last=self._once or not self._source.grows)
        self._judge(final=self._once)
        self._commit()
        return True

    def _step(self, held: list[pa.RecordBatch], refused: list[pa.RecordBatch], *, last: bool = False) -> None:
        """Decode messages and take them into the state, so many at once that their events take little memory."""
        whole = pa.Table.from_batches(held, arrow_schema(MESSAGES))
        n = max(1, -(-len(whole) * BYTES_AT_ONCE // max(whole.nbytes, BYTES_AT_ONCE)))
        for begin in range(0, max(1, len(whole)), n):
            is_last = begin + n >= len(whole)
            self._absorb(whole.slice(begin, n), refused if is_last else [], last=last and is_last)
            _trim()
        self._positions = dict(self._source.positions)

    def _absorb(self, messages: pa.Table, refused: list[pa.RecordBatch], *, last: bool) -> None:
        assert self._decoding is not None
        begun, parts = time.monotonic(), [FORM.empty_table()]
        if not isinstance(self._source, StorageFolder):  # which gives events
            images = reads_images(self._watched.settings)
            parts.append(self._decoding.decoded(messages, images=images, last=last))
            self._look_for_strangers(messages, parts[-1])
        batch = pa.concat_tables([*parts, *(pa.Table.from_batches([b]).cast(FORM) for b in refused)])
        if not batch.num_rows:
            return
        self._state, counts = absorbed(self._with_lost_files(), batch, self._watched)
        self._counts += counts
        self.last_events = batch.slice(max(0, batch.num_rows - LAST_EVENTS)).select(_SHOWN)
        self._note_watermarks(watermarks_written(batch, messages))
        self._took(time.monotonic() - begun)

    def _with_lost_files(self) -> WatchState:
        """The state with the files that a storage folder misses."""
        if not isinstance(self._source, StorageFolder):
            return self._state
        lost = self._source.lost_files, self._source.lost_schemas
        return replace(self._state, lost_files=lost[0], lost_schemas=lost[1])

    def _took(self, took: float) -> None:
        """Another batch is done."""
        batches = list(self.view.batches)
        for i in range(bisect_left(DURATIONS_S, took), len(batches)):
            batches[i] += 1
        self._dirty = True
        self.view = replace(
            self.view, batches=tuple(batches), batches_s=self.view.batches_s + took, last_batch_s=self._now()
        )

    def _look_for_strangers(self, messages: pa.Table, decoded: pa.Table) -> None:
        """Whether messages that cannot be decoded are in another protocol, until one is known."""
        bad = decoded.filter(pc.is_valid(decoded["error_class"]))
        if self._strangers or not bad.num_rows:
            return
        assert self._decoding is not None
        some = messages_of(messages, bad.slice(0, STRANGERS))
        found = other_protocol(some, protocol=self._watched.protocol, known=self._decoding.known)
        if found is not None:
            self._strangers = {found[0]: found[1]}

    def _note_watermarks(self, written: Mapping[Place, tuple[int, int | None]]) -> None:
        """When they were written, as of :func:`watermarks_written`, or now."""
        for at, (_, ms) in written.items():
            now_ms = int(self._now() * 1000)
            self._marked_ms[at] = now_ms if ms is None else min(ms, now_ms)  # another machine's clock may be ahead

    def _look(self) -> bool:
        """Ask what only the broker knows; whether it has partitions that are not read yet.

        Raises SourceError: a topic is not there any more, which who reads another one does not hear.
        """
        try:
            spans, ids = self._source.spans(), self._source.ids()
        except NoTopicError:
            raise
        except SourceError:  # reading reports it if it lasts
            return False
        self._answers()
        for topic, known in self._ids.items():
            if ids.get(topic, known) != known:
                raise _created_anew(topic)
        self._ids = {**ids, **self._ids}  # the broker may not have reported them before
        self._firsts = {at: low for at, (low, _) in spans.items()}
        self._looked_ends = {at: high for at, (_, high) in spans.items()}
        return bool(spans.keys() - self._source.positions.keys())

    def _judge(self, *, final: bool = False) -> None:
        """Look for findings, and show how far it is."""
        if self._dirty or final:
            self._state = self._with_lost_files()
            told = audited_so_far(self._state, self._watched, goes_on=not final)
            self._found = [*told.findings.to_pylist(), *map(contradiction, told.contradicted)]
            self._unjudged, self._notes, self._dirty = dict(told.unjudged), told.notes, False
            self._verified = told.verified
            if told.unsure > self._unsure:
                n, self._unsure = told.unsure - self._unsure, told.unsure
                self._counts += WatchCounts(unchecked={NO_OLD_VALUE: n}, checked={CHAIN: -n})
        before = self.findings
        for number, status in self._folder.put_aside().items():
            if number in before:  # one that is kept no more goes with the next commit
                before[number] = replace(before[number], status=status)
        judged = set(self._state.suspects.row_id.tolist()) if self._state.dropped else None
        after, beyond = found_again(
            before,
            self._found,
            now_s=self._now(),
            settle_s=self._settle_s,
            final=final,
            judged=judged,
            closed_ts=self._state.closed_ts,
        )
        self._changed |= {number for number in {*before, *after} if after.get(number) != before.get(number)}
        unsaid = {n for n, f in before.items() if f.status not in (PENDING, WITHDRAWN)}
        fresh = [f for n, f in after.items() if f.status == OPEN and n not in unsaid]
        for f in fresh:
            self._violations[f.guarantee, f.severity] = self._violations.get((f.guarantee, f.severity), 0) + 1
        for of, n in beyond.items():
            self._beyond[of] = max(n, self._beyond.get(of, 0))
        self.findings = after
        is_time = not 0 <= self._now() - self._tidied_s <= LOOK_S  # also if the clock was set back
        late = [f for n, f in after.items() if n in self._undocumented and f.status == OPEN] if is_time or final else []
        if fresh or late:
            self._document([*fresh, *late])
        if fresh or is_time:
            self._tidied_s, since_s = self._now(), self._now() - EVIDENCE_S
            wanted = {n for n, f in after.items() if f.status in (PENDING, OPEN) or f.changed_s > since_s}
            self._folder.drop_evidence(EVIDENCE, wanted)
        self._unsent = self._opens([self.findings[f.number] for f in fresh]) or 0
        self._show()
        _give_back()

    def _document(self, fresh: list[KeptFinding]) -> None:
        """Keep the messages that findings name, and the keys of their rows."""
        seen = dict[str, int]()
        chosen = []
        for f in fresh:
            seen[f.guarantee] = seen.get(f.guarantee, 0) + 1
            if seen[f.guarantee] <= EVIDENCE_AT_ONCE:
                chosen.append(f)
        topics = {topic for topic, _ in self._positions}
        named = {f.number: places_of(f, topics) for f in chosen}
        self._undocumented -= named.keys()
        wanted = sorted({p for own in named.values() for p in own})
        if isinstance(self._source, StorageFolder):
            records = self._source.evidence(wanted)
            self._undocumented |= {n for n, own in named.items() if self._source.unreadable & {*own}}
            keys = keys_of(pa.concat_tables([FORM.empty_table(), *(r.events for r in records.values())]))
            for f in chosen:
                of = [records[place] for place in sorted(named[f.number]) if place in records]
                self.findings[f.number] = _keyed(f, keys)
                self._folder.keep_evidence(self.findings[f.number], files=folder_of(of))
            return
        try:
            messages = self._source.messages_at(wanted)
        except SourceError:  # what was found is kept without them until they can be read
            self._undocumented |= named.keys()
            return
        self._changed |= named.keys()
        assert self._decoding is not None
        decode = decoder(self._watched.protocol, known=self._decoding.known)
        keys = keys_of(pa.Table.from_batches(decode(iter(messages.combine_chunks().to_batches())), FORM))
        at = list(zip(*[messages[c].to_pylist() for c in ("topic", "partition", "offset")], strict=True))
        for f in chosen:
            self.findings[f.number] = _keyed(f, keys)
            own = pa.array([place in named[f.number] for place in at], pa.bool_())
            self._folder.keep_evidence(self.findings[f.number], messages.filter(own) if named[f.number] else None)

    def _show(self) -> None:
        facts = self._state.known
        greatest = dict(zip(facts.homes, facts.watermarks.greatest().tolist(), strict=True))
        found = self._source.silences() if isinstance(self._source, LiveTopic) else {}
        ends, silent = self._ends(), self._silences.note(found, self._positions.keys(), self._now())
        files = self._source.newest_files() if isinstance(self._source, StorageFolder) else {}
        partitions = {
            at: PartitionView(
                read, self._firsts.get(at), ends.get(at), greatest.get(at, NO_TS), self._marked_ms.get(at),
                self._lost.get(at, 0), files.get(at), self._silences.answered_s.get(at),
            )
            for at, read in (dict.fromkeys(found) | self._positions).items()
        }  # fmt: skip
        self.view = replace(
            self.view, protocol=self._watched.protocol, counts=self._counts, partitions=partitions,
            pending_ts=self._pending(), open=_open_among(self.findings.values()),
            not_watched=self._watched.on(facts).not_watched, unjudged=self._unjudged, notes=self._noted(),
            settings=(self._watched.settings | self._verified).rows(),
            strangers=self._strangers, undocumented=len(self._undocumented), unsent=self._unsent,
            violations=_sum_of(self._violations, self._beyond),
            rows=self._sizes()[0], nbytes=self._sizes()[1],
            caught_up=not silent and all(read >= ends.get(at, 0) for at, read in self._positions.items()),
            silent=silent,
        )  # fmt: skip
        self.history.append(WatchSample.of(self.view, self._now()))

    def _noted(self) -> tuple[str, ...]:
        """What the source does not have, and what was noted of the log."""
        if isinstance(self._source, RecordedTopic):
            return (*self._source.notes, *self._notes)
        lost = without_files(self._state.lost_files, self._state.lost_schemas, self.source)
        return (*lost, *self._notes)

    def _ends(self) -> Mapping[Place, int]:
        """Where partitions end, as far as known."""
        return self._source.ends_now() if isinstance(self._source, LiveTopic) and self._source.positions else {}

    def _pending(self) -> dict[str, int]:
        """As of :class:`ticdc_lab.watch.metrics.WatchView`."""
        return pending(self._state)

    def _sizes(self) -> tuple[int, int]:
        """How many rows are remembered, and about how many bytes all of it takes."""
        return self._state.rows.n_rows, self._state.nbytes

    def _commit(self) -> None:
        decoding = self._decoding
        assert decoding is not None
        progress = WatchProgress(
            self.source, self._watched.protocol, self._watched.has_commit_ts, self._ids, self._positions, self._lost,
            self._marked_ms, self._counts, self._violations, decoding.saved(), self._on_spark, beyond=self._beyond,
            unsure=self._unsure, strangers=self._strangers,
        )  # fmt: skip
        files = dict[str, ReadFile | None]()
        if not isinstance(self._source, LiveTopic):
            progress = replace(progress, read=self._source.cursor())
        if isinstance(self._source, StorageFolder):
            files = {path: self._source.files.get(path) for path in self._source.changed}
            self._source.changed = set()
        self._state = self._folder.save(
            self._state, progress, self.findings, waiting=decoding.waiting, view=shown_as_json(self.view),
            changed=self._changed, files=files,
        )  # fmt: skip
        self._changed = set()


def _trim() -> None:
    """Give the system the free pieces of memory that lie below others."""
    with suppress(AttributeError, OSError):  # another C library than glibc, another system than Linux
        ctypes.CDLL(None).malloc_trim(0)


def _give_back() -> None:
    """Return unneeded memory to the system: free pieces below others, and the code of LLVM, which only compiles
    and is read from its file again if it has to.
    """
    with suppress(AttributeError, OSError):  # another C library than glibc, another system than Linux
        _trim()
        libc = ctypes.CDLL(None)
        for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
            access, offset = line.split()[1:3]
            if "libllvmlite" in line and (access == "r-xp" or (access == "r--p" and not int(offset, 16))):
                begin, end = (int(at, 16) for at in line.split()[0].split("-"))
                libc.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), mmap.MADV_DONTNEED)


def _open_among(findings: Iterable[KeptFinding]) -> dict[tuple[str, str], int]:
    return Counter((f.guarantee, f.severity) for f in findings if f.status == OPEN)


def _sum_of(one: Mapping[tuple[str, str], int], other: Mapping[tuple[str, str], int]) -> dict[tuple[str, str], int]:
    return {of: one.get(of, 0) + other.get(of, 0) for of in {**one, **other}}


def shown_as_json(view: WatchView) -> dict[str, Any]:
    """A view as JSON."""
    told = asdict(view)
    told["partitions"] = [{"topic": t, "partition": p} | asdict(of) for (t, p), of in view.partitions.items()]
    for name in ("violations", "open"):
        told[name] = [{"guarantee": g, "severity": s, "n": n} for (g, s), n in getattr(view, name).items()]
    return told


def watermarks_written(events: pa.Table, messages: pa.Table | None = None) -> dict[Place, tuple[int, int | None]]:
    """Of each partition the offset of the last watermark, and the timestamp (ms) of its message, if it has one."""
    marks = events.filter(pc.equal(events["kind"], "watermark")).select(["topic", "partition", "offset"])
    found = dict[Place, tuple[int, int | None]]()
    for mark in marks.group_by(["topic", "partition"]).aggregate([("offset", "max")]).to_pylist():
        at, ms = (mark["topic"], mark["partition"]), None
        if messages is not None:
            is_its = pc.and_(
                pc.equal(messages["partition"], mark["partition"]), pc.equal(messages["offset"], mark["offset_max"])
            )
            own = messages.filter(pc.and_(is_its, pc.equal(messages["topic"], mark["topic"])))
            stamps = own["timestamp"].cast(pa.int64()).drop_null()
            ms = stamps[0].as_py() // 1000 if len(stamps) else None
        found[at] = mark["offset_max"], ms
    return found


def places_of(finding: KeptFinding, topics: Collection[str]) -> set[tuple[str, int, int]]:
    """Topic, partition and offset of the messages that a finding names; one without topic is of the only topic."""
    named = [(finding.partition, finding.offset), *((e["partition"], e["offset"]) for e in finding.evidence)]
    topic = next(iter(topics)) if finding.topic is None and len(topics) == 1 else finding.topic
    return {(topic, p, o) for p, o in named if topic is not None and p is not None and o is not None}


def keys_of(events: pa.Table) -> dict[tuple[Any, ...], str]:
    """The keys of rows, as an audit writes them, by topic, partition, offset and seq."""
    found = {}
    for e in events.filter(pc.equal(events["kind"], "row")).select(_KEYED).to_pylist():
        image = e["columns"] if e["columns"] is not None else e["before"]
        text = ", ".join(f"{c['name']}={c['value']}" for c in image or () if c["is_key"] and c["value"] is not None)
        found[e["topic"], e["partition"], e["offset"], e["seq"]] = text
    return found


def _keyed(finding: KeptFinding, keys: Mapping[tuple[Any, ...], str]) -> KeptFinding:
    place = finding.topic, finding.partition, finding.offset, finding.seq
    return replace(finding, key=keys.get(place) if finding.row_id is not None else None)


_KEYED = ["topic", "partition", "offset", "seq", "columns", "before"]


def pending(state: WatchState) -> dict[str, int]:
    """By topic the least commit_ts above the resolved_ts of all its partitions; NO_TS for none."""
    facts, found = state.known, dict[str, int]()
    resolved, rows = resolved_of(facts), facts.of_kind("row")
    places: dict[str, list[int]] = {}
    for topic, place in zip(rows["topic"].to_pylist(), rows["place"].to_pylist(), strict=True):
        places.setdefault(topic, []).append(place)
    for topic, own in places.items():
        above = [
            int(ts.min())
            for part in state.recent.parts
            if len(ts := part.commit_ts[(part.commit_ts > resolved[topic]) & np.isin(part.place, own)])
        ]
        found[topic] = min(above, default=NO_TS)
    return found


def resolved_of(facts: LogFacts) -> dict[str, int]:
    """By topic the least resolved_ts of its partitions; NO_TS where one has no watermark."""
    found = dict[str, int]()
    for (topic, _), ts in zip(facts.homes, facts.watermarks.greatest().tolist(), strict=True):
        found[topic] = min(ts, found.get(topic, ts))
    return found


def _require_same(saved: WatchProgress, source: str, ids: Mapping[str, str], folder: WatchFolder) -> None:
    if saved.source != source:
        raise SourceError(
            f"{folder.folder} has the state of a watch of {saved.source}, not of {source}.",
            hint="Name another folder: --state OTHER",
        )
    for topic, known in saved.ids.items():
        if ids.get(topic, known) != known:
            raise _created_anew(topic)


def _created_anew(topic: str) -> SourceError:
    return SourceError(
        f"The topic {topic} was deleted and recreated since its watch began: its offsets are others.",
        hint="Watch it into another folder: --state OTHER. What was found stays in this one.",
    )


def unsettled(findings: Iterable[KeptFinding]) -> list[KeptFinding]:
    """Those that count: pending and open ones."""
    return [f for f in findings if f.status in (PENDING, OPEN)]
