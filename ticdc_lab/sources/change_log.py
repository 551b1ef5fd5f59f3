"""A loaded change log: its frames, how it was loaded, what is known of it, and what it cannot prove."""

from __future__ import annotations

import os
import shlex
import shutil
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ticdc_lab.codecs import NOTHING, Known, choice
from ticdc_lab.codecs.decode import EMPTY_MESSAGE, decoder
from ticdc_lab.codecs.decoded import NOTED
from ticdc_lab.codecs.detection import other_protocol
from ticdc_lab.codecs.handles import Handles, handles_of
from ticdc_lab.codecs.kernel.arrow import arrow_schema
from ticdc_lab.codecs.keys import NAME_A_PRIMARY_KEY
from ticdc_lab.codecs.registry import KERNELS
from ticdc_lab.codecs.simple_tables import defined_in
from ticdc_lab.engine import engine_of, parallelism, speeds, verbatim
from ticdc_lab.engine.choosing import BYTES_A_ROW
from ticdc_lab.engine.failures import engine_errors, task_errors
from ticdc_lab.engine.paths import stored_parquet
from ticdc_lab.engine.sessions import is_sail, require_room_for, start_beside
from ticdc_lab.engine.shuffle import Kernel, spark_order
from ticdc_lab.errors import ContractError, ProtocolError
from ticdc_lab.errors.redaction import shown_source
from ticdc_lab.errors.whole_files import local_path, room_for, temporary_folder
from ticdc_lab.events.sample import Sample
from ticdc_lab.events.schema import CHECKSUMS, DECODED, DISPATCH, EVENTS, IMAGE_HASHES, KEYS, QUARANTINE
from ticdc_lab.facts import LogFacts, log_facts
from ticdc_lab.facts.gathering import ARROW as FACTS
from ticdc_lab.facts.gathering import LEFT_OUT, offsets_alone
from ticdc_lab.facts.known import Home, LostFiles, LostSchema, ordered_offsets
from ticdc_lab.facts.limits import (
    EXTEND,
    RECORD_AGAIN,
    Counts,
    Lacking,
    absent,
    are_twice,
    begun_late,
    counts_of,
    firsts_of,
    held_offsets,
    held_twice,
    lacking,
    lacking_between,
    limits_of,
    without_files,
)
from ticdc_lab.facts.stalls import ARRIVED
from ticdc_lab.settings import Settings
from ticdc_lab.sources.learned import handles_in, put_into, words_of
from ticdc_lab.sources.origin import Origin
from ticdc_lab.sources.pieces import Source
from ticdc_lab.sources.places import Size
from ticdc_lab.sources.stored import (
    COUNTED,
    Again,
    StoredEvents,
    arrivals_file,
    decoded_into,
    decoded_near,
    decoding,
    facts_file,
    for_engines,
    groups_in,
    left_as_it_was,
    so_far,
)
from ticdc_lab.words import count, some_of


@dataclass(frozen=True, slots=True)
class ChangeLog:
    """A loaded change log. Its frames are lazy; :meth:`materialise` decodes once and keeps the result.

    Attributes
    ----------
    source, protocol
        What was loaded, as what.
    has_commit_ts
        Whether the protocol carries commit_ts here (canal-json only with ``enable-tidb-extension``).
    spark
        The session that computes with its frames; of the embedded engine it starts when one is first asked for.
    counts
        Known once materialised.
    known
        What its messages were decoded with beside themselves.
    sample
        What of it is looked at, see :meth:`sampled`; ``counts`` are of all that was read.
    origin
        What :func:`ticdc_lab.sources.load.load` was called with.
    """

    source: str
    protocol: str
    has_commit_ts: bool
    spark: SparkSession
    _messages: Callable[[], DataFrame]
    counts: Counts | None = None
    known: Known = NOTHING
    gaps: tuple[str, ...] = ()
    """Offsets that a Kafka topic no longer had, or missing or doubled in a recording, one sentence a partition;
    known once materialised."""
    edges: tuple[str, ...] = ()
    """Which partitions are not there, and which do not begin at their first message; known once materialised."""
    firsts: Mapping[Home, int] = field(default_factory=dict)
    """The first offset of each partition, decoded or not; known once materialised."""
    by_topic: Mapping[str, Counts] = field(default_factory=dict)
    """What is missing of each topic, where the log has several; known once materialised."""
    left_out: tuple[str, ...] = ()
    """Which files of its folder were not read, and what a dump of another tool lost, one sentence each."""
    guesses: tuple[str, ...] = ()
    """What was worked out from its bytes without proof, and the option that sets it, one sentence each."""
    protocols: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The files of each protocol, where they are of several and none was named; the empty text is no known one."""
    lost: frozenset[str] = frozenset()
    """What a dump of another tool does not have (:data:`ticdc_lab.sources.forms.LOSSES`)."""
    of_storage: bool = False
    """Whether a storage sink wrote it, which has no partitions."""
    lost_files: tuple[LostFiles, ...] = ()
    lost_schemas: tuple[LostSchema, ...] = ()
    unread_files: tuple[LostFiles, ...] = ()
    """Data files of a storage folder that could not be read in full; known once materialised."""
    places_in_files: Callable[[Collection[tuple[int, int]]], Mapping[tuple[int, int], str]] = lambda _: {}
    """Of a storage folder, partitions and offsets as files and lines; nothing of a topic."""
    strangers: tuple[str, ...] = ()
    """Which other protocol messages are in that could not be decoded; known once materialised."""
    sample: Sample | None = None
    origin: Origin | None = None
    _source: Source | None = None
    _stored: Callable[[], DataFrame] | None = None
    _overlaps: tuple[str, ...] = ()
    _gathered: tuple[Path, ...] = ()
    """Files of what its events state, where the tasks that decoded them wrote any."""
    _files: tuple[Path, ...] = ()
    """Files of its events, where tasks wrote any."""
    has_images: bool = True
    """Whether its events have the values of rows."""
    _again: Again | None = None
    """How the rest is decoded, where its files have of events only what most questions need."""
    _facts: list[LogFacts] = field(default_factory=list, init=False, repr=False, compare=False)
    _handles: list[Handles] = field(default_factory=list, init=False, repr=False, compare=False)
    _kept: dict[bool, Callable[[], DataFrame]] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Where this process decoded it for frames, with images or without."""

    @property
    def decoded(self) -> DataFrame:
        """:data:`ticdc_lab.events.schema.DECODED`; of a sample that is not materialised, all that was read.

        A message that several files of a folder hold is there once. To know which they are, the places of all messages
        are read when this is first asked for; :meth:`materialise` learns them while it decodes. The same holds for
        handle keys that only the log's DDL define. For the embedded engine this process decodes all of them then, into
        files that stay until it ends; Spark decodes when the frame is read.
        """
        return self._frame(images=True) if self._stored is None else self._stored()

    @property
    def messages(self) -> DataFrame:
        """:data:`ticdc_lab.events.schema.MESSAGES`, as recorded: one that several files of a folder hold is there as
        often.
        """
        return self._messages()

    def arrivals(self) -> pa.Table:
        """When its watermarks arrived at the broker (:data:`ticdc_lab.facts.stalls.ARRIVED`)."""
        offsets, found = pa.array(self.facts.watermarks.offset), [ARRIVED.empty_table()]
        for file in map(arrivals_file, self._files):
            with left_as_it_was(file), pa.OSFile(str(file)) as opened, pa.ipc.open_stream(opened) as times:
                found += [pa.table(batch.filter(pc.is_in(batch["offset"], offsets))) for batch in times]
        return pa.concat_tables(found)

    @property
    def settings(self) -> Settings:
        """What is known of the changefeed's settings, from options, its file, and the first messages."""
        return self.known.settings

    @property
    def narrow(self) -> DataFrame | None:
        """``decoded`` without the images, at a third of the cost; None where it would be no cheaper."""
        return self._frame(images=False) if self._stored is None else None

    def _frame(self, *, images: bool) -> DataFrame:
        assert self._source is not None
        known = replace(self.known, handles=self._keys_by_ddl())
        if is_sail(self.spark):
            return self._decoded_here(known, images)
        decode = decoding(self._source, self.protocol, known, images=images, skips=self._source.overlaps.skips)
        return self._source.raw.mapInArrow(decode, DECODED)

    def _decoded_here(self, known: Known, images: bool) -> DataFrame:
        if images not in self._kept and True not in self._kept:
            start_beside(self.spark)
            folder = temporary_folder("log-")  # frames outlive the log they came from
            with self.reading():
                whole = replace(self, known=known, sample=None)._by_workers(folder / "decoded", images)
            assert whole._stored is not None
            self._kept[images] = whole._stored
        found = (self._kept.get(True) or self._kept[images])()
        # Sail fails where it pushes a filter with a lambda into files; behind a number of rows it does not.
        return found.withColumn("_row", F.monotonically_increasing_id()).drop("_row")

    def _keys_by_ddl(self) -> Handles:
        """Handle keys that only its DDL define; learned in one pass over its messages when this is first asked for."""
        if not self._handles:
            assert self._source is not None
            known = self.known.handles or handles_in(self._source, self.protocol, self.known)
            self._handles.append(known)
        return self._handles[0]

    @property
    def events(self) -> DataFrame:
        """Events (:data:`ticdc_lab.events.schema.EVENTS`), with KEYS, CHECKSUMS, DISPATCH and IMAGE_HASHES."""
        named = (*EVENTS.names, *KEYS.names, *CHECKSUMS.names, *DISPATCH.names, *IMAGE_HASHES.names)
        events = self.decoded.where("error_class IS NULL")
        return (events if self.sample is None else events.where(self.sample.keeps())).select(*named)

    @property
    def files(self) -> StoredEvents | None:
        """Its events as files that workers, or this process, read themselves; None where it has none."""
        if not self._files or self.counts is None or self.sample is not None:
            return None
        return StoredEvents(self.spark, tuple(map(str, self._files)), self.counts.events, again=self._again)

    @property
    def quarantine(self) -> DataFrame:
        """:data:`ticdc_lab.events.schema.QUARANTINE`: every message that could not be decoded, with the reason."""
        return self.decoded.where("error_class IS NOT NULL").select(*QUARANTINE.names)

    @property
    def is_whole(self) -> bool:
        """Whether it is known that nothing is in ``quarantine``."""
        n = self.counts
        return n is not None and not n.quarantined and not n.parts

    @property
    def facts(self) -> LogFacts:
        """What is known of the whole log; gathered when it is first asked for, or while it was decoded."""
        if not self._facts:
            with self.reading():
                parts = self._gathered_parts()
                gathered = pa.concat_tables(parts) if parts else self.events.transform(log_facts).toArrow()
                empty = self._empty()
            facts = LogFacts.read(gathered, firsts=self.firsts)
            facts = replace(
                facts, defined=defined_in(self.known.tables),
                lost_files=(*self.lost_files, *self.unread_files), lost_schemas=self.lost_schemas,
            )  # fmt: skip
            if empty is not None:
                facts = replace(facts, offsets=ordered_offsets([facts.offsets, empty]))
            self._facts.append(facts if parts else facts.without_offsets_of(self.sample))
        return self._facts[0]

    def _unread_files(self) -> tuple[LostFiles, ...]:
        """As of ``unread_files``: changes may be missing there."""
        if self._source is None or self._source.unread_files is None or not (self.counts and self.counts.quarantined):
            return ()
        columns = "partition", "offset", "error_class"
        rows = self._refused(*columns) if self._files else [self.quarantine.select(*columns).toArrow()]
        places = {at for r in rows for at in zip(r["partition"].to_pylist(), r["offset"].to_pylist(), strict=True)}
        return self._source.unread_files({at for at in places if None not in at})

    def _empty(self) -> pa.Table | None:
        """Offsets of messages without key and value: they are read, so nothing is missing there."""
        if self.counts is None or not self.counts.empty:
            return None
        return self.refused_offsets(empty=True)

    def _refused(self, *columns: str) -> Iterator[pa.Table]:
        """Columns of ``quarantine``, a group of its files after the other, which no engine reads for it."""
        for group in chain.from_iterable(groups_in(file, [*columns]) for file in self._files):
            yield group.filter(pc.is_valid(group["error_class"]))

    def refused_offsets(self, *, empty: bool | None = None) -> pa.Table:
        """Offsets of whole messages in ``quarantine``, as ``offsets`` of :class:`ticdc_lab.facts.LogFacts`.

        ``empty``: of those without key and value alone, or of all others.
        """
        if not self._files:
            whole = self.quarantine.where("coalesce(seq, 0) = 0")
            own = whole.where(f"(error_class = '{EMPTY_MESSAGE}') = {empty}") if empty is not None else whole
            return held_offsets(own).toArrow()
        parts = [FACTS.empty_table()]
        for rows in self._refused("topic", "partition", "offset", "seq", "error_class"):
            seq = pc.fill_null(rows["seq"], 0)
            own = pc.equal(seq, 0)
            if empty is not None:
                own = pc.and_(own, pc.equal(pc.equal(rows["error_class"], EMPTY_MESSAGE), empty))
            parts.append(offsets_alone(rows.set_column(3, "seq", seq).filter(own)))
        return ordered_offsets(parts)

    def refused_by_class(self) -> dict[str, int]:
        """How many rows ``quarantine`` has of each ``error_class``, in order."""
        if (found := self.refused_firsts()) is None:
            found = self.quarantine.groupBy("error_class").agg(F.count(F.lit(1)).alias("n")).toArrow()
        return dict(sorted(zip(found["error_class"].to_pylist(), found["n"].to_pylist(), strict=True)))

    def refused_firsts(self) -> pa.Table | None:
        """The first row in ``quarantine`` of each ``error_class``, and how many it has; None where no file is known."""
        if not self._files:
            return None
        names = ["error_class", "topic", "partition", "offset", "seq", "reason"]
        firsts, n = arrow_schema(DECODED).empty_table().select(names), Counter[str]()
        for rows in self._refused(*names):
            n.update({c["values"]: c["counts"] for c in rows["error_class"].value_counts().to_pylist()})
            both = pa.concat_tables([firsts, rows])
            both = both.take(spark_order(both, names)).append_column("at", pa.array(range(len(firsts) + len(rows))))
            firsts = both.take(both.group_by("error_class").aggregate([("at", "min")])["at_min"]).drop_columns(["at"])
        counted = pa.array([n[name] for name in firsts["error_class"].to_pylist()], pa.int64())
        return firsts.append_column("n", counted)

    def _gathered_parts(self, fact: str = "") -> list[pa.Table]:
        """What tasks gathered: all, or facts of one kind."""
        some = [("fact", "==", fact)] if fact else None
        found = list[pa.Table]()
        for file in self._gathered:
            with left_as_it_was(Path(file)):
                found.append(pq.read_table(file, filters=some))
        return found

    @property
    def made_from(self) -> dict[str, Any] | None:
        """How to load it again, JSON without secrets (:class:`Origin`); how many messages."""
        if self.origin is None:
            return None
        read = {} if self.counts is None else {"messages": self.counts.messages}
        return replace(self.origin, sample=self.sample).as_dict() | read

    @property
    def limits(self) -> tuple[str, ...]:
        """What this log cannot prove, one sentence each; else empty."""
        known = None if self._source is None else self._source.overlaps_known
        overlaps = self._overlaps if known is None else known.sentences
        of_settings = (*(c.words for c in self.settings.contradictions), *self.settings.not_evaluated)
        keyed = words_of([*self._handles[0]]) if self._handles else ()
        return (*of_settings, *self._forms, *self.left_out, *self.guesses, *keyed, *overlaps, *self.edges, *limits_of(
            self.protocol, self.counts, has_commit_ts=self.has_commit_ts, gaps=(*self.gaps, *self.strangers),
            sample=() if self.sample is None else self.sample.limits,
        ))  # fmt: skip

    def require_commit_ts(self, answer: str) -> None:
        """Raise :class:`ProtocolError` if ``answer`` needs commit_ts and the log has none."""
        if not self.has_commit_ts:
            raise ProtocolError(
                f"{self.source}: {answer} cannot be computed. {self.limits[-1]}",
                hint=f"Create the changefeed {RECORD_AGAIN.get(self.protocol, EXTEND)}, and record again.",
            )

    def require_events(self) -> None:
        """Raise :class:`ProtocolError` if no message could be decoded, or no row is in the sample; needs ``counts``.

        Of a storage folder's csv schema files and the checkpoint always can be: its rows are asked for.
        """
        self.require_one_protocol()
        n = self.counts
        if n is not None and self.sample is not None and not n.kept:
            raise ProtocolError(
                f"{self.source}: none of its row changes is in the sample ({self.sample.words}).",
                hint="Table names are matched exactly, times are UTC. See them: ticdc-lab survey "
                f"{shlex.quote(shown_source(self.source))}",
            )
        if n is not None and n.quarantined and not (n.kept if self.protocol == "csv" else n.decoded):
            self._refuse(n)

    def require_one_protocol(self) -> None:
        """Raise :class:`ProtocolError` if its files begin with messages of several protocols, and none was named."""
        if self.protocols:
            first = self.protocols[self.protocol][0]
            raise ProtocolError(
                f"{self.source}: {self.words_of_protocols}. So they are several logs, and no answer fits all of them.",
                hint=f"Read each alone: ticdc-lab audit {shlex.quote(shown_source(first))}. To read one "
                "protocol and put the messages of the others into the quarantine: "
                f"ticdc-lab audit {shlex.quote(shown_source(self.source))} "
                f"--protocol {self.protocol}",
            )

    @property
    def words_of_protocols(self) -> str:
        """Which files are in which protocol, where they are of several; else empty."""
        named = [
            f"{some_of([Path(file).name for file in sorted(files)], most=5)} in {protocol or 'no known protocol'}"
            for protocol, files in sorted(self.protocols.items(), key=lambda own: (not own[0], own[0]))
        ]
        return f"its files begin with messages of {count(len(named), 'form')}: {'; '.join(named)}" if named else ""

    @property
    def _forms(self) -> tuple[str, ...]:
        """The same as a sentence of its own."""
        return (f"I{self.words_of_protocols[1:]}.",) if self.protocols else ()

    def require_decoded(self, quarantine: str | None = None) -> None:
        """Raise :class:`ProtocolError` if there is no message, or none that could be decoded; needs ``counts``.

        Parameters
        ----------
        quarantine
            Where the messages were kept that could not be.
        """
        n = self.counts
        if n is not None and not n.decoded:
            self._refuse(n, quarantine)

    def _refuse(self, n: Counts, quarantine: str | None = None) -> None:
        """Report that nothing could be decoded, with the first reason, and where all of them are."""
        which = f"its {n.quarantined} records" if self.protocol == "csv" else f"{n.messages} messages"
        why = [f"The first: {r['reason']}" for r in self.quarantine.select("reason").limit(1).toArrow().to_pylist()]
        said = " ".join(filter(None, [*why, *self._forms, *self.strangers, *self.guesses]))
        named = "auto" if self.origin is None else self.origin.protocol
        how = "" if named == "auto" else f" --protocol {named}"
        command = (
            f"ticdc-lab events {shlex.quote(shown_source(self.source))}{how} --out events.jsonl --quarantine bad.jsonl"
        )
        raise ProtocolError(
            f"{self.source}: none of {which} could be decoded as {self.protocol}, so there is nothing to answer from."
            + f" {said}".rstrip(),
            hint=f"All reasons are in {quarantine}." if quarantine else f"See all reasons: {command}",
        )

    @property
    def source_kind(self) -> str:
        """What lies at ``source``, one of :data:`ticdc_lab.sources.KINDS`; empty once materialised."""
        return "" if self._source is None else self._source.kind

    def size(self) -> Size:
        """How large it is, without reading it."""
        return Size() if self._source is None else self._source.measure()

    def require_room(self, question: str) -> None:
        """Refuse a question that needs more memory than there is on the embedded engine, as far as its size is known.

        ``question``: as of :func:`ticdc_lab.engine.memory.require_room`. Raises SetupError: the system would end this
        process in the middle of the work.
        """
        size = Size()
        with suppress(OSError):  # what cannot be read is named when it is decoded
            size = self.size()
        counted, stored = self.counts is not None, size.messages or 0
        rows = self.counts.events if self.counts is not None else stored if self.sample is None else 0
        n_bytes = (rows if counted else stored) * BYTES_A_ROW or size.bytes or 0
        require_room_for(self.spark, question, size=n_bytes, rows=rows)

    def messages_done(self, folder: str) -> Callable[[], tuple[int, int] | None]:
        """How many messages :meth:`materialise` into ``folder`` has decoded so far, and of about how many.

        Gives None until something is known (see :func:`ticdc_lab.engine.running.watched`).
        """
        whole: list[int | None] = []

        def measure() -> tuple[int, int] | None:
            local = local_path(folder)
            done = 0 if local is None else so_far(local)
            if done and not whole:
                whole.append(self.size().messages)
            return (done, max(done, whole[0])) if done and whole[0] else None

        return measure

    def heads(self, n: int, kernel: Kernel, form: pa.Schema) -> pa.Table:
        """What a kernel makes of events (:data:`ticdc_lab.events.schema.DECODED`, without images) of a log as loaded.

        Of up to ``n`` messages from the beginning of each part that a task reads: a look at several places.
        """
        assert self._source is not None
        decode = decoding(self._source, self.protocol, self.known, images=False, first=n)
        return self._source.found(lambda batches: kernel(decode(batches)), form)

    def sampled(self, sample: Sample) -> ChangeLog:
        """The same log with only the row changes of a sample, lazily; its ``limits`` list what that cannot prove.

        Raises
        ------
        ProtocolError
            A time is asked of a log without commit_ts.
        ContractError
            This log is what was kept of a sample: ``limits`` would omit what that left out.
        """
        if sample.by_time:
            self.require_commit_ts("a sample by time")
        if self.sample is not None and self._source is None and not sample.is_whole:
            raise ContractError(
                f"This log contains only {self.sample.words}; expected a whole one to take a sample of.",
                hint="Call `sample()` of the log that `load()` gave.",
            )
        return self if sample.is_whole else replace(self, sample=sample, _gathered=())

    def materialise(self, folder: str, *, images: bool = True, in_full: bool = True) -> ChangeLog:
        """Decode everything once into Parquet and continue from there.

        Parameters
        ----------
        folder
            A path or URL that does not exist yet. A path the workers write themselves: on a cluster it must lead to
            one folder that driver and workers share (a network file system), as must the path of a local source. A
            URL, such as ``s3a://..``, Spark writes.
        images
            False leaves ``columns`` and ``before`` null: watermarks, transactions and most checks need only the
            hashes, and decoding costs a third then.
        in_full
            False: where kernels decode in this process, write only what most questions need. Frames, images and what
            dispatchers read are decoded when they are first asked for, beside ``folder``.

        Returns
        -------
        ChangeLog
            The same log, read from ``folder``, with ``counts``.

        Raises
        ------
        SourceError
            The folder is there already, or not all machines of the cluster see it or the source.
        """
        self.require_room("decoding")
        with engine_errors(), self.reading(), room_for(folder):
            local = None if self._source is None else local_path(folder)
            begun = time.monotonic()
            log = self._by_engine(folder, images) if local is None else self._by_workers(local, images, in_full=in_full)
            if images and log._again is None and self.sample is None and log.counts is not None:
                step = speeds.decoding_step(
                    engine_of(self.spark), parallelism(self.spark), self.protocol, self.source_kind
                )
                speeds.note(step, messages=log.counts.messages, seconds=time.monotonic() - begun)
            # what a sample left out is no gap: the source is asked again then
            whole = log if self.sample is None else self
            log = log._with_gaps(whole)._with_strangers()
        known = None if self._source is None else self._source.overlaps_known
        return replace(
            log, has_images=images, _source=None, _overlaps=self._overlaps if known is None else known.sentences
        )

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Wrap actions on the frames in it: the fault of a source, or of a task of ours, is put into words."""
        with nullcontext() if self._source is None else self._source.said_plainly(), task_errors():
            yield

    def _by_engine(self, folder: str, images: bool) -> ChangeLog:
        """The engine writes, as to a URL; what is counted is read again."""
        decoded = self.decoded if images or self.narrow is None else self.narrow
        kept = decoded if self.sample is None else decoded.where(self.sample.keeps())
        kept.write.parquet(folder)
        stored = stored_parquet(self.spark, folder, schema=DECODED)
        whole = stored if self.sample is None else self.decoded if self.narrow is None else self.narrow
        counts = counts_of(whole, self.sample)
        if (first := self.counts) is not None:  # when it was read
            counts = replace(counts, lacking=first.lacking, late=first.late, absent=first.absent, files=first.files)
        guesses = (*self.guesses, *(words_of([*self._handles[0]]) if self._handles else ()))
        return replace(self, _stored=lambda: stored, counts=counts, guesses=guesses, _gathered=(), _files=())

    def _by_workers(self, folder: Path, images: bool, *, in_full: bool = True) -> ChangeLog:
        """The workers write what they decode; only which files they wrote comes here."""
        assert self._source is not None
        spark, source, kept = self.spark, self._source, None if self.sample is None else self.sample.kept
        noted = None
        if is_sail(spark):  # this process decodes
            size = Size()
            with suppress(OSError):  # what cannot be read is named when it is decoded
                size = self.size()
            n_bytes = size.bytes or _LEAST_BYTES * (size.messages or 0)
            choice.expect(choice.CAPTURE, n_bytes)
            if choice.expect(self.protocol, n_bytes, _NOTED_ABOVE) and not in_full and self._is_noted():
                from ticdc_lab.codecs.kernel.noted import Noted

                noted = Noted()
        stamps = {} if noted is None else source.stamps()
        token = NOTED.set(noted)
        try:
            written = decoded_into(folder, source, self.protocol, self.known, images=images, kept=kept, noted=noted)
        finally:
            NOTED.reset(token)
        n = {name: sum(written[name].to_pylist()) for name in COUNTED}
        files = [Path(f) for f in sorted(written["file"].to_pylist())]  # their names begin with the task
        gathered = tuple(facts_file(f) for f in files)
        handles = self._stated_keys(gathered)
        if handles and not (images and noted is None) and not self.known.handles:  # they are hashed by values
            shutil.rmtree(folder)
            # with images the files show whose rows have no other key
            log = self if images else replace(self, known=replace(self.known, handles=handles))
            return log._by_workers(folder, images)
        keyed = words_of(put_into(files, handles) if images and noted is None else [*handles])
        counts = Counts(messages=n["decoded"] + n["quarantined"], **n)
        again = None if noted is None else self._again_beside(folder, images, noted.table(), counts, stamps)

        def decoded() -> DataFrame:
            if again is not None:
                return again.frame()
            names = [verbatim(spark, f) for f in for_engines(files, parallelism(spark))]
            return stored_parquet(spark, *names, schema=DECODED) if files else spark.createDataFrame([], DECODED)

        guesses = (*self.guesses, *keyed)
        return replace(
            self, _stored=cache(decoded), counts=counts, guesses=guesses, _gathered=gathered, _files=tuple(files),
            _again=again,
        )  # fmt: skip

    def _is_noted(self) -> bool:
        """Whether what its images show can be noted: kernels decode them here, and few questions look at them.

        A given setting may be compared with all images, and a table's handle key is hashed by values.
        """
        source = self._source
        here = source is not None and source.decode is None and bool(source.shares)
        plain = self.sample is None and not self.known.handles and all(s.source == "bytes" for s in self.settings.known)
        return here and plain and self.protocol in KERNELS

    def _again_beside(
        self, folder: Path, images: bool, noted: pa.Table, counts: Counts, stamps: Mapping[str, os.stat_result]
    ) -> Again:
        """How what was not written into a folder is decoded again, into another one beside it where that is all."""
        source, lock, made = self._source, Lock(), dict[bool, ChangeLog]()
        assert source is not None

        def whole(with_images: bool) -> ChangeLog:
            with lock:
                if found := made.get(True) or made.get(with_images and images):
                    return found
                # a copy of this process may decode it, too (`engine.running.beside`)
                kind = "whole" if with_images and images else "without_images"
                beside = Path(f"{folder}_{kind}_{os.getpid()}")
                with engine_errors(), self.reading(), room_for(beside), source.files_are_there():
                    source.require_unchanged(stamps)
                    found = self._by_workers(beside, with_images and images)
                if found.counts != counts:
                    shutil.rmtree(beside, ignore_errors=True)  # another question would find it there
                    raise source.has_changed(self.source)
                made[with_images and images] = found
                return found

        def files(with_images: bool) -> StoredEvents:
            found = whole(with_images).files
            assert found is not None
            return found

        near = decoded_near(source, self.protocol, self.known, images=images, stamps=stamps)
        return Again(noted, source.shares, near, files, lambda: whole(images).decoded)

    def _stated_keys(self, gathered: Sequence[Path]) -> Handles:
        """Handle keys that only its DDL define, as the tasks that decoded it gathered them."""
        if self.protocol not in NAME_A_PRIMARY_KEY:
            return {}
        ddl = [part for file in gathered if len(part := pq.read_table(file, filters=[("fact", "==", "ddl")]))]
        return handles_of(LogFacts.read(pa.concat_tables(ddl)).ddl, protocol=self.protocol) if ddl else {}

    def _with_gaps(self, whole: ChangeLog) -> ChangeLog:
        """The log with its ``gaps``; of a topic looked for only where fewer messages came than there should be.

        ``whole`` is the same with the messages that are in no sample.
        """
        if self._source is None or self.counts is None:
            return self
        expected = self._source.expected
        twice: tuple[str, ...] = ()
        gone, foreign, strange = Lacking(), dict[str, int](), 0
        if expected is None:
            offsets = self._offsets(whole)
            foreign = self._foreign_topics(offsets)
            if foreign:
                own = pc.is_in(offsets["topic"], pa.array([*foreign], pa.string()))
                offsets = offsets.filter(pc.invert(own))
                held = self.quarantine.where("error_class != 'empty-message' AND coalesce(seq, 0) = 0")
                strange = held.where(held["topic"].isin([*foreign])).count()
            firsts = firsts_of(offsets)
            if self._source.kind != "storage":  # all its streams are there
                gone = absent(firsts, protocol=self.protocol, marked=self.counts.watermarks > 0)
            known = self._source.overlaps_known
            between = () if known is None else known.between
            found = lacking_between(offsets, said=between)
            if are_twice(offsets):
                differ = {} if known is None else known.differ
                unread = None if self.is_whole else self.quarantine.where("coalesce(seq, 0) = 0")
                each = held_twice(self.events, unread)
                twice = tuple(s for t in each for s in t.sentences(said=differ.get((t.topic, t.partition), ())))
        else:
            spans = expected().toArrow().to_pylist()  # one a partition
            sizes = [s["end_offset"] - s["first_offset"] for s in spans if None not in s.values()]
            every = sizes and sum(sizes) == self.counts.messages
            found = Lacking() if every else lacking(whole._positions, expected())
            given = {(s["topic"], s["partition"]): s["first_offset"] for s in spans}
            firsts = firsts_of(self._offsets(whole)) if None in given.values() else given
        late = begun_late(firsts)
        lost = sum(of.n for of in self.lost_files)
        counts = replace(self.counts, lacking=found.n, late=late.n, absent=gone.n, foreign=strange, files=lost)
        said = [_FOREIGN.format(topic=t, n=n, s="s" * (n != 1), protocol=self.protocol) for t, n in foreign.items()]
        damaged = self._unread_files()
        files = without_files((*self.lost_files, *damaged), self.lost_schemas, self._source.name)
        edges = (*said, *gone.sentences, *late.sentences, *files)
        topics = {topic for topic, _ in firsts} - foreign.keys()
        by_topic = self._missing_by_topic(topics, found, late, gone) if len(topics) > 1 else {}
        return replace(
            self, gaps=(*found.sentences, *twice), edges=edges, counts=counts, firsts=firsts, by_topic=by_topic,
            unread_files=damaged,
        )  # fmt: skip

    def _missing_by_topic(
        self, topics: Collection[str], lacking: Lacking, late: Lacking, gone: Lacking
    ) -> dict[str, Counts]:  # fmt: skip
        """The counts of each topic, as far as they show missing data. A message without a topic may be of any."""
        columns, unread, parts = ("topic", "seq", "error_class"), Counter[str | None](), Counter[str | None]()
        refused = self._refused(*columns) if self._files else [self.quarantine.select(*columns).toArrow()]
        for rows in refused if not self.is_whole else ():
            own = rows.filter(pc.not_equal(rows["error_class"], EMPTY_MESSAGE))
            is_part = pc.greater(pc.fill_null(own["seq"], 0), 0)
            parts.update(own["topic"].filter(is_part).to_pylist())
            unread.update(own["topic"].filter(pc.invert(is_part)).to_pylist())
        none = Counts(messages=0, decoded=0, quarantined=0, events=0)
        return {
            topic: replace(
                none, quarantined=unread[topic] + unread[None], parts=parts[topic], late=late.topics.get(topic, 0),
                lacking=lacking.topics.get(topic, 0), absent=gone.topics.get(topic, 0),
            )
            for topic in topics
        }  # fmt: skip

    def _foreign_topics(self, offsets: pa.Table) -> dict[str, int]:
        """How many messages each topic without any decoded message has, if another topic has decoded ones."""
        messages = offsets.group_by("topic").aggregate([("n", "sum")]).sort_by("topic").to_pylist()
        if self.counts is None or self.counts.quarantined == self.counts.empty or len(messages) < 2:
            return {}
        read = self.decoded.where("error_class IS NULL").select("topic").distinct().toArrow()["topic"].to_pylist()
        return {m["topic"]: m["n_sum"] for m in messages if m["topic"] not in read} if read else {}

    @property
    def _positions(self) -> DataFrame:
        """A row for each of its messages."""
        is_whole = self._stored is not None and self.sample is None
        return self.decoded.where("coalesce(seq, 0) = 0") if is_whole else self.messages

    def _offsets(self, whole: ChangeLog) -> pa.Table:
        """The same of all messages of files, whether or not they could be decoded and are in the sample."""
        parts = self._gathered_parts("offsets" if self.sample is None else LEFT_OUT)
        if not parts:
            parts = [held_offsets(whole._positions).toArrow()]
        elif self.counts is not None and self.counts.quarantined:
            parts.append(self.refused_offsets())
        return ordered_offsets(parts)

    def _with_strangers(self) -> ChangeLog:
        """The log with ``strangers``, looked for only where messages were put aside."""
        if self.counts is None or not self.counts.quarantined:
            return self
        place = ("topic", "partition", "offset")
        if self._files:
            some = arrow_schema(DECODED).empty_table().select([*place, "key", "value", "error_class"])
            for rows in self._refused(*some.column_names):
                both = pa.concat_tables([some, rows])
                some = both.take(spark_order(both, place)[:LOOKED_AT])
        else:
            some = self.quarantine.select(*place, "key", "value").orderBy(*place).limit(LOOKED_AT).toArrow()
        return replace(self, strangers=self._strangers_among(some, "messages in quarantine that were looked at"))

    def strangers_at_heads(self) -> tuple[str, ...]:
        """What ``strangers`` would find in the first messages of each file, before anything is read."""
        if self._source is None or not self._source.of_several_files:
            return ()
        heads = self._source.heads_of_files(HEAD_OF_FILE).combine_chunks()
        decode = decoder(self.protocol, images=False, known=self.known)
        read = pa.Table.from_batches(decode(iter(heads.to_batches())))
        which = f"messages at the heads of files that cannot be decoded as {self.protocol}"
        return self._strangers_among(read.filter(pc.is_valid(read["error_class"])), which)

    def _strangers_among(self, quarantined: pa.Table, which: str) -> tuple[str, ...]:
        found = other_protocol(quarantined, protocol=self.protocol, known=self.known)
        if found is None:
            return ()
        told = f"Of {quarantined.num_rows:,} {which} {found[1]:,} are {found[0]}"
        if self.counts is not None and not self.counts.decoded:
            return (f"{told}, no {self.protocol}. Name it: --protocol {found[0]}.",)
        return (f"{told}, no {self.protocol}: two kinds of logs lie here. Read each alone.",)


_FOREIGN = (
    "The topic {topic} is foreign: none of its {n} message{s} is {protocol}, but messages of others are. It counts in "
    "no answer, and none of its partitions is missing."
)
_NOTED_ABOVE = 2 << 20
"""Bytes of messages whose images are noted; of fewer they are kept, as questions ask for them."""

_LEAST_BYTES = 100
"""Of a message, about, where a broker does not report the size of its messages."""

HEAD_OF_FILE = 4
"""Messages of each file that are looked at before anything is read."""

LOOKED_AT = 256
"""Messages in quarantine in which another protocol is looked for."""
