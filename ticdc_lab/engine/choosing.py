"""Which engine runs: the embedded one for what fits this machine, Apache Spark for the rest."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, get_args

from ticdc_lab.engine import embedded
from ticdc_lab.engine.environment import memory_bytes
from ticdc_lab.engine.object_stores import SCHEMES, Store
from ticdc_lab.errors import SetupError, SparkMissingError
from ticdc_lab.errors.whole_files import bare_path, scheme_of

Engine = Literal["auto", "embedded", "spark"]
ENGINES = get_args(Engine)

FITS_BYTES = 5 << 30
"""Up to this size of its messages a log is read by the embedded engine: about ten million of them.

An audit of 10 M events takes 1 GiB of memory. What frames group by key takes 200 to 300 bytes an event.
"""

FITS_MESSAGES = 10_000_000
"""The same for a topic, whose broker knows offsets and no sizes."""

SORTED = 5
"""How many bytes of memory the embedded engine takes to sort a byte of messages, at most about.

To write 1 M row changes of 770 MB as a new topic took 3.1 GiB, a workload of 1 M row changes 4.5 GiB.
"""

BRIEF_BYTES = 32 << 20
"""Up to this size of its messages a command on a local Spark ends before the JVM's optimising compiler has paid.

An audit of 30,000 messages (29 MB) takes 16 to 22 CPU seconds without that compiler, 37 with it.
"""

BYTES_A_ROW = 900
"""Of a message with one row change, about."""

_PACKED = {".gz": 12, ".zst": 12, ".parquet": 6}
"""How many times larger a file's messages are than the file, at least about: 12 for canal-json in gzip."""

SPARK_SETUP = (
    "Run: ./lab setup --spark   (without a checkout: python -m pip uninstall -y pyspark-client && "
    "python -m pip install 'ticdc_lab[spark]'; in a notebook restart the kernel then)"
)


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """An engine, and why it is this one."""

    engine: Literal["embedded", "spark"]  # ``embedded`` or ``spark``
    why: str  # a clause, such as ``the log fits this machine``


@dataclass(frozen=True, slots=True)
class Machine:
    """What the choice depends on beside the source."""

    remote: str = ""  # ``SPARK_REMOTE``, empty where it is not set
    master: str = ""  # the master that the caller's settings name, empty where they name none
    # ``no_spark``, ``no_embedded``: what keeps an engine from running here; None where nothing does.
    no_spark: str | None = None
    no_embedded: str | None = None
    no_kafka: str | None = None  # what keeps topics from being read without Java; None where nothing does
    memory_bytes: int = 16 << 30  # of this machine, or of the container


def choose(
    source: str | None = None, *, engine: str = "auto", needs_spark: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> EngineChoice:  # fmt: skip
    """Choose the engine that runs on this machine, before anything is started.

    ``source``: what will be read, as a user writes it; None where that is not known yet. ``engine``: ``auto``, or the
    engine that was asked for. ``needs_spark``: what is wanted that Spark alone can do, as a clause (``a stream
    never ends``). ``settings``: settings of the session, among which a master may be. Returns: the engine and why.
    Raises SetupError: what was asked for cannot run here, or there is no such engine; a :class:`SparkMissingError`
    where that is because Spark is not installed.
    """
    return decide(source, size_bytes(source), here(settings or {}), engine=engine, needs_spark=needs_spark)


def decide(
    source: str | None, size: int, machine: Machine, *, engine: str = "auto", needs_spark: str | None = None
) -> EngineChoice:
    """Choose the engine, as :func:`choose`; pure.

    ``source``, ``engine``, ``needs_spark``: as for :func:`choose`. ``size``: bytes of the source's messages, about.
    ``machine``: where it would run.
    """
    if engine not in ENGINES:
        raise SetupError(f"There is no engine {engine!r}.", hint=f"One of: {', '.join(ENGINES)}.")
    reason = needs_spark or _needs_spark(source, size, machine)
    if engine == "embedded":
        return _embedded(needs_spark or _cannot_be_embedded(source, machine), machine)
    if engine == "spark" or reason is not None:
        why = reason or "it was asked for"
        if machine.no_spark is not None and not machine.remote:
            raise SparkMissingError(f"Apache Spark is needed ({why}), but {machine.no_spark}.", hint=SPARK_SETUP)
        return EngineChoice("spark", why)
    if machine.no_embedded is None:
        return EngineChoice("embedded", "the log fits this machine" if source else "nothing needs Spark")
    if machine.no_spark is None:
        return EngineChoice("spark", f"the embedded engine cannot be used: {machine.no_embedded}")
    raise SparkMissingError(f"No engine can run here: {machine.no_embedded}, and {machine.no_spark}.", hint=SPARK_SETUP)


def here(settings: Mapping[str, str]) -> Machine:
    """The machine as it is."""
    return Machine(
        remote=os.environ.get("SPARK_REMOTE", "") or settings.get("spark.remote", ""),
        master=settings.get("spark.master", ""),
        no_spark=spark_missing(),
        no_embedded=embedded.missing(),
        no_kafka=None if find_spec("confluent_kafka") else "confluent-kafka is not installed",
        memory_bytes=memory_bytes(),
    )


def spark_missing() -> str | None:
    """What keeps Apache Spark from starting in this Python, Java aside; None if nothing does."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        return "pyspark is not installed"
    if not (Path(spec.origin).parent / "jars").is_dir() or find_spec("py4j") is None:
        return "only its client (pyspark-client) is installed"
    return None


def too_large_to_sort(size: int, memory_bytes: int | None = None) -> str | None:
    """Why Spark has to sort the messages of a new topic, as a clause; None where they fit the memory of this machine.

    ``size``: bytes of the messages, about.
    """
    memory = memory_bytes or here({}).memory_bytes
    if size * SORTED <= memory // 2:
        return None
    return (
        f"{_gb(size)} GB of messages are sorted, which takes the embedded engine {_gb(size * SORTED)} GB "
        f"of memory, and this machine has {_gb(memory)}"
    )


def _gb(n: float) -> str:
    return f"{n / 1e9:.0f}" if n >= 1e9 else f"{n / 1e9:.2g}"


def size_bytes(source: str | None) -> int:
    """Bytes of the messages in a file or folder of this machine or an object store, about; 0 for anything else.

    Raises SourceError: the store cannot be asked.
    """
    if source is None:
        return 0
    if (store := Store.of(source)) is not None:
        if not store.is_folder():
            return store.size() * _PACKED.get(Path(store.root).suffix, 1)
        return sum(f.size * _PACKED.get(Path(f.path).suffix, 1) for f in store.files())
    if scheme_of(source) is not None:
        return 0
    root = Path(bare_path(source)).expanduser()
    if not root.is_dir():
        return _unpacked(root)
    return sum(_unpacked(Path(folder, name)) for folder, _, names in os.walk(root) for name in names)


def _unpacked(file: Path) -> int:
    try:
        return file.stat().st_size * _PACKED.get(file.suffix, 1)
    except OSError:
        return 0


def _embedded(reason: str | None, machine: Machine) -> EngineChoice:
    if (cannot := machine.no_embedded or reason) is not None:
        raise SetupError(f"The embedded engine cannot be used: {cannot}.", hint=embedded.USE_SPARK)
    return EngineChoice("embedded", "it was asked for")


def _needs_spark(source: str | None, size: int, machine: Machine) -> str | None:
    if machine.remote:
        return f"SPARK_REMOTE is {machine.remote}"
    if machine.master:
        return f"spark.master is {machine.master}"
    if (elsewhere := _cannot_be_embedded(source, machine)) is not None:
        return elsewhere
    fits = min(FITS_BYTES, machine.memory_bytes // 2)
    large = f"the log is large ({_gb(size)} GB of messages, more than {_gb(fits)})"
    return large if size > fits else None


def _cannot_be_embedded(source: str | None, machine: Machine) -> str | None:
    scheme = scheme_of(source) if source is not None else None
    if scheme is None or scheme.lower() in SCHEMES:
        return None
    if scheme == "kafka":
        return machine.no_kafka and f"the source is a Kafka topic, and {machine.no_kafka}"
    return f"the source is at {scheme}://, which Hadoop reads"
