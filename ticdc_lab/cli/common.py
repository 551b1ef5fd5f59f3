"""What all commands share: options, errors, the session, the log, and how things are printed."""

from __future__ import annotations

import _thread
import gc
import io
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import wraps
from importlib import import_module
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

import click

import ticdc_lab
from ticdc_lab.cli import completion
from ticdc_lab.cli.layout import EngineOption, Program, SourceOption
from ticdc_lab.engine.running import shown
from ticdc_lab.errors import SparkMissingError, TiCDCLabError
from ticdc_lab.errors.redaction import redacted
from ticdc_lab.events.tso import with_clock, with_texts
from ticdc_lab.words import first_line

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ticdc_lab.answers import Answer
    from ticdc_lab.codecs.known import Bounds
    from ticdc_lab.log import Log
    from ticdc_lab.settings import Settings


CLEAN, FINDINGS, FAILED, INTERRUPTED, UNHEARD = 0, 1, 2, 130, 141


_PATH_SHOWN = 400
_HIDE_TRACE = "Run with --debug for the whole trace."


settings_option = click.option(
    "--option",
    cls=SourceOption,
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting of the source; may be repeated. Kafka: a setting of Spark's connector, such as "
    "kafka.security.protocol or startingOffsets. Changefeed: a setting of the one that wrote the log, such as "
    "csv.delimiter or time-zone; ticdc-lab settings SOURCE lists them.",
)


def _kept(context: click.Context, option: click.Parameter, value: str) -> None:
    context.meta[f"ticdc_lab.{option.name}"] = value


changefeed_option = click.option(
    "--changefeed",
    cls=SourceOption,
    metavar="FILE",
    expose_value=False,
    callback=_kept,
    help="The file of the changefeed that wrote the log: TOML, or the JSON of cdc cli changefeed query.",
)


def _bounds(context: click.Context, option: click.Parameter, value: tuple[str, ...]) -> None:
    context.meta["ticdc_lab.bounds"] = named_values(value, "NAME=NUMBER", option="--bound")


_source_kind = click.option(
    "--source-kind",
    cls=SourceOption,
    default="auto",
    show_default=True,
    help="capture, parquet, delta, storage or kafka; of dumps kcat, kcat-format, console, values, objects, csv, "
    "lengths, rows or connect. auto detects it from the bytes. table: SOURCE is the name "
    "of a table in the Spark session.",
)
_kafka_config = click.option(
    "--kafka-config",
    cls=SourceOption,
    help="A properties file with Kafka's settings; keeps secrets off the command line.",
)
_debug = click.option("--debug", is_flag=True, help="Show the whole trace of an error.")
_of_messages = (_source_kind, settings_option, _kafka_config, _debug)

_reading_options = (
    click.option(
        "--protocol",
        shell_complete=completion.protocols,
        cls=SourceOption,
        default="auto",
        show_default=True,
        help="The protocol in the changefeed's sink-uri; auto: detected from the bytes.",
    ),
    _source_kind,
    click.option("--schema-registry", cls=SourceOption, help="For avro: the registry's URL, or a file of schemas."),
    click.option("--claim-check", cls=SourceOption, help="The claim-check folder, in which TiCDC put large messages."),
    click.option(
        "--bound",
        cls=SourceOption,
        multiple=True,
        metavar="NAME=NUMBER",
        expose_value=False,
        callback=_bounds,
        help="Limits of one message; a larger one goes to quarantine as too-large. inflated: bytes after "
        "decompression. values: JSON values. events: rows. columns: columns of a row. line: bytes of a line of "
        "the file. growth, growth_free: bytes of its texts, at most growth times its size plus growth_free.",
    ),
    settings_option,
    _kafka_config,
    _debug,
)


def engine_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add what runs a command; :func:`session_of` reads it."""
    which = click.option(
        "--engine", cls=EngineOption, type=click.Choice(("auto", "embedded", "spark")), default="auto",
        show_default=True, expose_value=False, callback=_kept, help="embedded: in this process, without Java. "
        "spark: Apache Spark, here or at SPARK_REMOTE. auto: embedded if SOURCE is small and on this machine.",
    )  # fmt: skip
    heap = click.option(
        "--driver-memory", cls=EngineOption, expose_value=False, callback=_kept,
        help="Heap of Spark's driver, if Spark runs on this machine; default: 4g, or two fifths of less memory.",
    )  # fmt: skip
    return which(heap(command))


def source_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the source, and how it is read, to a command; every error of it ends in a sentence."""
    return _with_options(changefeed_option(command), click.argument("source", shell_complete=completion.files))


def source_of_any_changefeed(command: Callable[..., Any]) -> Callable[..., Any]:
    """As :func:`source_options`, for a command whose ``--changefeed`` is another one than wrote the log."""
    return _with_options(command, click.argument("source", shell_complete=completion.files))


def sources_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """As :func:`source_options`, for a command that takes any number of sources."""
    return _with_options(
        changefeed_option(command),
        click.argument("sources", shell_complete=completion.files, metavar="SOURCE...", nargs=-1),
    )


def messages_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """As :func:`source_options`, for a command that decodes nothing."""
    return _with_options(command, click.argument("source", shell_complete=completion.files), _of_messages)


def _with_options(
    command: Callable[..., Any], argument: Callable[..., Any], options: Sequence[Callable[..., Any]] | None = None
) -> Callable[..., Any]:
    command = engine_options(_checked(command))
    for option in reversed((argument, *(options or _reading_options))):
        command = option(command)
    return guarded(command)


def _checked(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options are checked before the command begins; of several sources each is, when its turn comes."""

    @wraps(command)
    def run(**given: Any) -> None:
        from ticdc_lab.cli.arguments import check_outs, check_reading, check_source

        check_reading(given)
        given_changefeed(given.get("options", {}))
        sources = given.get("sources", ()) or (given.get("source"),)
        one = sources[0] if len(sources) == 1 and not _are_targets(given) else None
        if one is not None:
            context = click.get_current_context()
            engine = None if context.obj is not None else context.meta.get("ticdc_lab.engine") or "auto"
            is_read = context.info_name not in ("survey", "record")  # they report the amount themselves
            context.meta["ticdc_lab.too_large"] = check_source(one, given, engine=engine, is_read=is_read)
        check_outs(one, *(given.get(name) for name in _OUTS))
        command(**given)

    return run


def _are_targets(given: Mapping[str, Any]) -> bool:
    """Whether a command that compares was given two targets of a replay."""
    from ticdc_lab.cli.arguments import TARGETS

    return all(str(given.get(name, "")).startswith(TARGETS) for name in ("source", "other"))


_OUTS = ("out", "quarantine", "alignments_out")


def sample_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the choice of a sample, which :func:`decoded` takes as ``sample``; goes below :func:`source_options`."""

    @click.option(
        "--tables",
        shell_complete=completion.tables,
        default="",
        metavar="SCHEMA.TABLE,..",
        help="Only row changes of these tables.",
    )
    @click.option(
        "--from", "first", default="", metavar="MOMENT", help="Only row changes from then on: a time in UTC or a TSO."
    )
    @click.option("--to", "last", default="", metavar="MOMENT", help="Only row changes up to then, included.")
    @wraps(command)
    def run(*args: Any, tables: str, first: str, last: str, **kwargs: Any) -> None:
        from ticdc_lab.events.sample import sample_of

        command(*args, sample=sample_of(tables, first, last), **kwargs)

    return run


json_flag = click.option("--json", "as_json", is_flag=True, help="Print one JSON object, and nothing else on stdout.")


_NOTES = "ticdc_lab.notes"


def answer_first() -> None:
    """From here on notes wait until the command has printed its answer, whose first line is the first that is shown."""
    click.get_current_context().meta.setdefault(_NOTES, [])


def note(words: str) -> None:
    """Print on stderr what was read, and how: below the answer after :func:`answer_first`, otherwise at once."""
    waiting = click.get_current_context().meta.get(_NOTES)
    if waiting is None:
        click.echo(words, err=True)
    else:
        waiting.append(words)


def _say_notes() -> None:
    waiting = click.get_current_context().meta.get(_NOTES, [])
    while waiting:
        click.echo(waiting.pop(0), err=True)


def guarded(command: Callable[..., Any]) -> Callable[..., Any]:
    """Every error ends in a message and exit code 2: 1 means findings."""

    @wraps(command)
    def run(*args: Any, debug: bool, **kwargs: Any) -> None:
        from ticdc_lab.engine import memory

        options: dict[str, str] = {}
        ended: Callable[[], Exception | None] = lambda: None  # noqa: E731
        try:
            if "option" in kwargs:
                options |= _options(kwargs.pop("option"), kwargs.pop("kafka_config", None))
                kwargs["options"] = options
            with memory.guarded(_end_at_once) as ended:
                command(*args, **kwargs)
            require_uninterrupted()
        except (click.ClickException, click.exceptions.Exit):
            raise
        except (click.Abort, KeyboardInterrupt):
            if (error := ended()) is not None:
                _say_notes()
                click.echo(_said(error), err=True)
                sys.exit(FAILED)
            click.echo("ticdc-lab: interrupted", err=True)
            sys.exit(INTERRUPTED)
        except Exception as e:  # Spark gives what Java threw, a full disk or a damaged file, in many shapes
            _end_if_unheard(e)
            _say_notes()
            missing = missing_spark(e)
            if missing is not None and (lab := checkout_script()) is not None:
                set_up_and_start_again(lab, missing)
            import traceback

            from ticdc_lab.engine.failures import in_our_words

            told = missing or in_our_words(e) or e
            click.echo(redacted(traceback.format_exc() if debug else _said(told), options), err=True)
            sys.exit(FAILED)
        finally:
            _say_notes()

    return run


def _end_at_once(error: Exception) -> NoReturn:
    """End from another thread: the main one is in a compiled function, and the system would end this process next."""
    os.write(2, f"{_said(error)}\n".encode())
    os._exit(FAILED)


def _end_if_unheard(error: Exception) -> None:
    """End if the error is a closed output: ``| head`` ends once it has its lines."""
    if not isinstance(error, BrokenPipeError) or sys.stdout is None:
        return
    look = select.poll()
    with suppress(io.UnsupportedOperation):  # what Python itself collects
        look.register(sys.stdout, 0)
    if look.poll(0):
        _end_silently(UNHEARD)


def _end_silently(code: int) -> NoReturn:
    sys.stdout = None  # Python would try once more, and complain
    sys.exit(code)


def _options(given: tuple[str, ...], kafka_config: str | None) -> dict[str, str]:
    """Settings of the source; those on the command line win."""
    from ticdc_lab.sources.kafka import properties

    return (properties(kafka_config) if kafka_config else {}) | named_values(given, "KEY=VALUE", option="--option")


def named_values(given: Sequence[str], form: str, *, option: str) -> dict[str, str]:
    """Read ``NAME=VALUE`` of an option that can be given often; what is none is not shown, as it may be a secret."""
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise click.BadParameter(f"expected {form}", param_hint=option)
        found[name] = value
    return found


def is_folder(out: str | None) -> bool:
    """Whether what ``--out`` names is a folder, also one that is not there yet."""
    return out is not None and (out.endswith("/") or Path(out).is_dir())


def require_folder(out: str | None, logs: int) -> None:
    """Refuse a page where each of several logs gets one."""
    if out and out.endswith(".html"):
        raise click.BadParameter(f"{logs} logs need a folder, not the file {out}", param_hint="--out")


def _said(error: Exception) -> str:
    if isinstance(error, TiCDCLabError):
        return with_clock(f"ticdc-lab: {error}")
    if isinstance(error, RecursionError):
        return f"ticdc-lab: what was given is nested too deep\n\nHint: {_HIDE_TRACE}"
    if isinstance(error, OSError) and error.strerror:
        places = " and ".join(str(p)[:_PATH_SHOWN] for p in (error.filename, error.filename2) if p)
        return f"ticdc-lab: {places or 'the system'}: {error.strerror}\n\nHint: {_HIDE_TRACE}"
    first = first_line(error)
    return f"ticdc-lab: {first}\n\nHint: {_HIDE_TRACE}"


def session_of(
    *sources: str, needs_spark: str | None = None, extra: Mapping[str, str] | None = None
) -> SparkSession:  # fmt: skip
    """The session of a caller from Python, brought as ``obj``, or of the engine that fits; it reports which.

    ``extra`` are settings of Spark. An embedded engine starts when something needs it.
    """
    require_uninterrupted()
    context = click.get_current_context()
    if context.obj is not None:
        return context.obj  # type: ignore[no-any-return]
    from ticdc_lab.engine import choose, session

    if context.meta.get("ticdc_lab.engine") == "auto":
        needs_spark = needs_spark or context.meta.get("ticdc_lab.too_large")
    engine, memory = (context.meta.get(f"ticdc_lab.{name}") for name in ("engine", "driver_memory"))
    choices = [choose(source, engine=engine or "auto", needs_spark=needs_spark) for source in sources or (None,)]
    choice = next((c for c in choices if c.engine == "spark"), choices[0])
    note(f"engine: {choice.engine}, as {choice.why}")
    brief = choice.engine == "spark" and _are_small(sources)
    spark = session(
        choice.engine, app_name="ticdc-lab", driver_memory=memory or "", brief=brief, extra=extra, at_once=False
    )
    if brief:
        _note_slow_start(spark)
    return spark


def _note_slow_start(spark: SparkSession) -> None:
    """Note what makes a local Spark start sooner, where that was not done: a small log's answer waits for it."""
    from ticdc_lab.engine import class_archive, has_jvm, is_several_machines

    if has_jvm(spark) and not is_several_machines(spark) and not class_archive.is_used_by(spark):
        note(
            "Spark starts in two thirds of the time once its classes are kept (half a minute, 200 MB): "
            "python -m ticdc_lab.engine.class_archive"
        )


def _are_small(sources: Sequence[str]) -> bool:
    """Whether all lie on this machine and are so small that a JVM ends before its optimising compiler has paid."""
    from ticdc_lab.engine.choosing import BRIEF_BYTES, size_bytes

    sizes = [size_bytes(source) for source in sources]
    return min(sizes, default=0) > 0 and sum(sizes) <= BRIEF_BYTES


def given_bounds() -> Bounds:
    """The value of ``--bound``."""
    from ticdc_lab.codecs.known import bounds_of

    return bounds_of(click.get_current_context().meta.get("ticdc_lab.bounds", {}))


def given_changefeed(options: Mapping[str, str]) -> Settings:
    """The settings in ``--changefeed`` and ``--option`` of the changefeed that wrote the log."""
    from ticdc_lab.settings.file import given_settings

    return given_settings(options, file=click.get_current_context().meta.get("ticdc_lab.changefeed"))


@contextmanager
def opened(
    source: str, where: Mapping[str, Any], *, frames: bool = True, beside: str | None = None
) -> Iterator[tuple[SparkSession, Any]]:
    """The log, not decoded yet; a module that the command needs is imported while the engine starts, if it is asked
    for ``frames``.
    """
    from ticdc_lab.engine.sessions import start_beside
    from ticdc_lab.sources.load import load

    changefeed = given_changefeed(where["options"])
    sources = where.get("all_sources") or (source,)
    spark = session_of(*sources, needs_spark=where.get("needs_spark"))
    if frames:
        start_beside(spark)
    if beside:
        import_module(beside)
    given = {name: where[name] for name in ("protocol", "source_kind", "schema_registry", "claim_check", "options")}
    log = load(spark, source, bounds=given_bounds(), changefeed=changefeed, **given)
    require_uninterrupted()
    with log.reading():
        yield spark, log


@contextmanager
def decoded(
    source: str, where: Mapping[str, Any], *, images: bool = True, needed: bool = True, frames: bool = True,
    beside: str | None = None, in_full: bool = True,
) -> Iterator[tuple[SparkSession, Any]]:  # fmt: skip
    """The log, decoded once into a temporary folder; an error where no event is in it, unless none is needed."""
    import tempfile

    from ticdc_lab.audit.contradicted import with_rules_noted

    with (
        opened(source, where, frames=frames, beside=beside) as (spark, log),
        tempfile.TemporaryDirectory(prefix="ticdc_lab_") as folder,
    ):
        if "sample" in where:
            log = log.sampled(where["sample"])
        if needed:
            log.require_one_protocol()
        target = f"{folder}/decoded"
        log.require_room(click.get_current_context().info_name or "decoding")
        with shown(spark, f"decoding {log.protocol}", measured=log.messages_done(target)):
            log = with_rules_noted(log.materialise(target, images=images, in_full=in_full))
        require_uninterrupted()
        say_counts(log)
        if needed:
            log.require_events()
        yield spark, log


def say_counts(log: Any) -> None:
    """Note what was read and what was not."""
    n = log.counts
    note(
        f"{log.source} ({log.protocol}): {n.messages} {'message' if n.messages == 1 else 'messages'} in = {n.decoded} "
        f"decoded ({n.events} {'event' if n.events == 1 else 'events'})"
        f" + {n.quarantined} quarantined{' (they could not be decoded)' if n.quarantined else ''}"
    )
    if log.sample is not None:
        note(f"  {n.kept} row changes are in the sample")
    if n.quarantined or n.parts:
        for error_class, rows in log.refused_by_class().items():
            note(f"  quarantined {rows} x {error_class}")
    for sentence in log.limits:
        note(f"  {sentence}")


def small(aggregate: DataFrame) -> list[dict[str, Any]]:
    """Rows of an aggregate: as many as there are partitions, tables or guarantees, for any size of the log."""
    return list(aggregate.toArrow().to_pylist())


def facts_of(log: Any) -> dict[str, Any]:
    """What every JSON answer contains about the log."""
    n = log.counts
    return {
        "source": log.source,
        "protocol": log.protocol,
        "messages": n.messages,
        "decoded": n.decoded,
        "quarantined": n.quarantined,
        "events": n.events,
        "limits": list(log.limits),
    } | ({} if log.sample is None else {"sample": log.sample.words, "kept": n.kept})


def print_json(value: dict[str, Any]) -> None:
    """One JSON object on stdout; beside each integer that a reader of JSON may round stands its text."""
    import json

    click.echo(json.dumps(with_texts(value), ensure_ascii=False, default=str))


# Python raises KeyboardInterrupt wherever the main thread is. In a callback of a weak reference, and each import
# has one, in a finalizer, and in a library that catches everything it is lost, and the command would run to its end.

_heard: list[int] = []


def require_uninterrupted() -> None:
    """Raise :class:`KeyboardInterrupt` if Ctrl-C was pressed, also where that was lost."""
    if _heard:
        raise KeyboardInterrupt


def _hear(number: int, frame: FrameType | None) -> None:
    _heard.append(number)
    raise KeyboardInterrupt


def _interrupt_again() -> None:
    """From another thread, and once the main thread has left what lost it: there it would be lost once more.

    A signal wakes it where it waits, which ``_thread.interrupt_main`` does not.
    """
    time.sleep(0.01)
    if signal.getsignal(signal.SIGINT) is _hear:  # else the command has ended
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


@contextmanager
def _interrupts_kept() -> Iterator[None]:
    """Raise an interrupt again that was lost; not where other code handles the signal."""
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    others = sys.unraisablehook

    def lost(what: sys.UnraisableHookArgs) -> None:
        if what.exc_type is KeyboardInterrupt:
            _thread.start_new_thread(_interrupt_again, ())
        else:
            others(what)

    _heard.clear()
    sys.unraisablehook = lost
    signal.signal(signal.SIGINT, _hear)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.unraisablehook = others
        _heard.clear()


class _Program(Program):
    """What the operating system refuses where no command runs, as writing a help to a full device, is reported, too."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        try:
            with _interrupts_kept():
                found = super().main(*args, **kwargs)
            sys.stdout.flush()
            return found
        except OSError as error:
            _end_if_unheard(error)
            with suppress(OSError):
                click.echo(_said(error), err=True)
            _end_silently(FAILED)

    def invoke(self, ctx: click.Context) -> Any:
        """A command computes; what prints a help alone imports nothing of an engine."""
        from ticdc_lab.engine.sail_process import FEW_SEARCHES

        gc.set_threshold(FEW_SEARCHES)
        # Arrow keeps its pages: what is decoded next would fill fresh ones; OpenBLAS, which nothing here calls, starts
        # threads that wait in a loop
        os.environ.setdefault("MIMALLOC_PURGE_DELAY", "-1")
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        return super().invoke(ctx)


@click.group(cls=_Program)
@click.version_option(package_name="ticdc-lab")
def main() -> None:
    """Answer questions about a TiCDC change log.

    SOURCE is a capture file (.jsonl, .jsonl.gz, .parquet), a dump of another tool (kcat -J, kafka-console-consumer,
    rpk, a page's export, a folder of Kafka Connect), a folder of such files, a Delta table of messages, a folder of
    TiCDC's storage sink, or kafka://HOST:PORT[,HOST:PORT]/TOPIC[,TOPIC].
    """


@contextmanager
def asked(
    source: str, where: Mapping[str, Any], *, images: bool = True, frames: bool = True, in_full: bool = True
) -> Iterator[tuple[SparkSession, Log]]:
    """The log, decoded once, to be asked; without ``frames`` questions that are answered from its files.

    ``in_full`` as of :meth:`ticdc_lab.sources.change_log.ChangeLog.materialise`.
    """
    import tempfile

    answer_first()
    with (
        decoded(source, where, images=images, frames=frames, beside="ticdc_lab.log", in_full=in_full) as (spark, log),
        tempfile.TemporaryDirectory(prefix="ticdc_lab_") as folder,
    ):
        from ticdc_lab.log import Log

        require_uninterrupted()
        yield spark, Log(log, folder)


def say(words: str, *, fg: str | None = None) -> None:
    """Print words about a log, in a colour: what cannot be seen in them, as a NUL byte, is an escape."""
    from ticdc_lab.words import visible

    click.echo(click.style(visible(words, kept="\n\t"), fg=fg))


def print_answer(
    log: Log, answer: Answer, *, as_json: bool, shown: Mapping[str, Sequence[str]] = MappingProxyType({}), **more: Any
) -> None:
    """An answer as one JSON object, or its sentences and some columns of its frames as text.

    The answer's limits join the log's, which :func:`say_counts` has printed.
    """
    from ticdc_lab.answers.answer import SHOWN, as_text
    from ticdc_lab.facts.definitions import NAMELESS
    from ticdc_lab.words import lane_of

    if as_json:
        limits = {"limits": [*log.limits, *_unsaid(log, answer)]}
        print_json(facts_of(log.change_log) | {"answer": answer.finding} | answer.facts() | limits | more)
        return
    say(answer.finding)
    for sentence in answer.details:
        say(f"  {sentence}")
    say_limits(log, answer)
    for name, columns in shown.items():
        frame = answer.frames[name]
        if len(frame):
            listed = frame[[*columns]].head(SHOWN).fillna({"table_name": NAMELESS})
            click.echo(as_text(listed.rename(columns={"partition": lane_of(log.change_log.of_storage)})))
        if len(frame) > SHOWN:
            click.echo(f"and {len(frame) - SHOWN:,} more {name}; --json shows them")


def say_limits(log: Log, answer: Answer, *, say: Callable[[str], object] = say) -> None:
    """Limits of an answer, without those printed for its log already."""
    for sentence in _unsaid(log, answer):
        say(f"  {sentence}")


def _unsaid(log: Log, answer: Answer) -> list[str]:
    """The limits of an answer that are none of its log; a comparison has its logs', each with the log's name."""
    said = {*log.limits, *(f"{log.source}: {limit}" for limit in log.limits)}
    return [sentence for sentence in answer.limits if sentence not in said]


def print_table(rows: list[dict[str, Any]], *names: str) -> None:
    """Rows as aligned text."""
    from ticdc_lab.answers.terminal import aligned

    click.echo(aligned(names, (["" if r[n] is None else str(r[n]) for n in names] for r in rows)))


# Apache Spark comes when a command first needs it: in a checkout the command waits for the set-up and starts again.

_TRIED = "TICDC_LAB_SPARK_SET_UP"


def missing_spark(error: Exception) -> SparkMissingError | None:
    """Give the error if it means that Spark is not installed, and an import that fails for it in the same words."""
    if isinstance(error, SparkMissingError):
        return error
    if isinstance(error, ImportError) and str(error.name).split(".")[0] in ("pyspark", "py4j", "delta"):
        from ticdc_lab.engine.choosing import SPARK_SETUP

        return SparkMissingError(f"Apache Spark is needed, but not installed: {error.msg}.", hint=SPARK_SETUP)
    return None


def checkout_script() -> Path | None:
    """Give the ``lab`` of the checkout whose own ``.venv`` this is; None anywhere else, and after one attempt."""
    lab = Path(ticdc_lab.__file__).parents[1] / "lab"
    ours = lab.is_file() and Path(sys.prefix).resolve() == (lab.parent / ".venv").resolve()
    return lab if ours and _TRIED not in os.environ else None


def set_up_and_start_again(lab: Path, error: SparkMissingError) -> NoReturn:
    """Announce that Spark is being installed and how long it takes, install it, and start this very command again.

    All notes go to stderr: stdout belongs to the command's answer.
    """
    click.echo(f"ticdc-lab: {error.message}\nInstalling it now, once, in one to three minutes (450 MB).", err=True)
    import subprocess

    code = subprocess.call([sys.executable, str(lab), "setup", "--spark"], stdout=sys.stderr.fileno())
    if code != 0:
        sys.exit(code)
    os.environ[_TRIED] = "1"
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def print_settings(rows: Iterable[Mapping[str, str]]) -> None:
    """The table of settings (:meth:`ticdc_lab.settings.Settings.rows`), a block each, in 100 columns."""
    from ticdc_lab.answers.terminal import wrapped

    for row in rows:
        click.echo(wrapped(f"{row['setting']} = {row['value']}", indent=2))
        for label, text in (
            ("known from", f"{row['known from']}, {row['how surely']}: {row['evidence']}"),
            ("decides", row["what depends on it"]),
            ("if it is wrong", row["if it is wrong"]),
        ):
            click.echo(wrapped(text, indent=4, label=f"{label:<16}"))
