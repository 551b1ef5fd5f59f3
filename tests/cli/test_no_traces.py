"""No matter what a command is given, a user reads sentences: no trace of Python or Java without ``--debug``."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
import weakref
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Event

import click
import pytest
from click.testing import CliRunner
from conftest import ROOT, golden
from pyspark.sql import SparkSession

from ticdc_lab.cli import common, main

HOSTILE = {
    "broken.yaml": b"a: [1, {b: ",
    "bytes.yaml": b"\xff\xfe\x00\x01" * 20,
    "list.yaml": b"- 1\n- 2\n",
    "deep.yaml": b"[" * 5_000,
    "itself.yaml": b"a: &a [*a]\n",
    "empty.yaml": b"",
    "broken.toml": b"[sink\ndispatchers = 3",
    "other.toml": b"[sink]\ndispatchers = 3\n",
    "broken.json": b'{"a":',
    "deep.json": b"[" * 100_000,
    "deep.ipynb": b"[" * 100_000,
    "many.yaml": b"- a: 1\n" * 20_001,
    "repeated.yaml": b"a: &a [1, 1]\nb: &b [*a, *a]\n" + b"c: [" + b"*b, " * 9_000 + b"]\n",
    "digits.yaml": b"seed: " + b"9" * 5_000,
    "dotted.toml": b".".join([b"a"] * 20_000) + b" = 1",
    "digits.toml": b"[mounter]\nworker-num = " + b"9" * 5_000,
    "digits.json": b'{"config": {"mounter": {"worker-num": ' + b"9" * 5_000 + b"}}}",
    "large.toml": b"#" * 1_100_000,
    "cut.db": b"\0" * 3_000,
    "noise.jsonl": random.Random(1).randbytes(3_000),
    "noise.parquet": random.Random(2).randbytes(3_000),
    "noise.jsonl.gz": random.Random(3).randbytes(3_000),
    "noise.properties": random.Random(4).randbytes(300),
}
VALUES = (
    "", "nix", "-1", "0", "9" * 23, "💥", "a=b", "/root/..", "x" * 5_000, "http://127.0.0.1:1/x", "kafka://127.0.0.1:1/t",
    "kafka://", "s3a://b/c", "file:///nope", "nan", "%s", "{}", "[", ".", "folder", "2026-99-99", "a.b.c.d", *HOSTILE,
)  # fmt: skip
TRACES = ("Traceback (most", "Exception", "\tat ", "java.", "py4j", 'File "', "object at 0x")
LASTING = ("serve", "demo", "ingest", "consume", "workbench")
"""Commands that would not end, or that ask others for long."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the folder that commands run in, with hostile files."""
    for name, content in HOSTILE.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/x.txt").write_text("x")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command that is no group, with the words that call it."""
    if isinstance(command, click.Group):
        for name, inner in sorted(command.commands.items()):
            yield from commands(inner, (*path, name))
    elif path[-1] not in LASTING:
        yield path, command


def drawn(path: tuple[str, ...], command: click.Command, r: random.Random) -> list[str]:
    """A call with hostile arguments and some hostile options."""
    args = [*path, *(r.choice(VALUES) for p in command.params if isinstance(p, click.Argument))]
    options = [p for p in command.params if isinstance(p, click.Option) and p.name not in ("debug", "help", "engine")]
    for p in r.sample(options, min(len(options), r.randrange(4))):
        args += [p.opts[0], *([] if p.is_flag else [r.choice(VALUES)])]
    return args


def require_words(args: list[str], spark: SparkSession) -> None:
    """The command ends with one of its exit codes, and what it shows is no trace."""
    found = CliRunner().invoke(main, args, obj=spark)
    said = f"ticdc-lab {' '.join(a[:60] or repr(a) for a in args)}\n{found.output[-600:]}\n{found.exception!r:.300}"
    assert found.exception is None or isinstance(found.exception, SystemExit), said
    assert found.exit_code in (0, 1, 2), said
    assert not [t for t in TRACES if t in found.output], said


MORE = range(2, 2 + int(os.environ.get("ROUNDS", "40")))


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in MORE)])
def test_no_command_shows_a_trace(spark: SparkSession, folder: Path, seed: int) -> None:
    """Each command once a seed."""
    for path, command in commands(main):
        require_words(drawn(path, command, random.Random(f"{seed} {path}")), spark)


FOUND_ONCE = (
    ["notebook", "deep.ipynb"],
    ["why", "noise.jsonl", "--schema-registry", "x" * 5_000],
    ["ddl-service", "list"],
    ["pd", "replay", "nan"],
)


@pytest.mark.parametrize("args", FOUND_ONCE, ids=lambda a: " ".join(a)[:40])
def test_what_once_showed_insides_does_no_more(spark: SparkSession, folder: Path, args: list[str]) -> None:
    """Python's names of errors and objects, numbers of the system, and libraries' words for a refused connection."""
    require_words(args, spark)
    said = CliRunner().invoke(main, args, obj=spark).output
    assert not any(words in said for words in ("recursion", "[Errno", "HTTPConnectionPool", "Max retries")), said


def test_a_trace_would_be_seen(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """An error that the command does not foresee, past all that catches."""

    def broken(*_: object, **__: object) -> None:
        raise KeyError("x")

    monkeypatch.setattr(main.commands["survey"], "callback", broken)
    with pytest.raises(AssertionError, match="KeyError"):
        require_words(["survey", "noise.jsonl"], spark)


LOG = str(golden("messages_canal-json-tidb_bank.jsonl.gz"))
"""Large enough that a report is not ready before the signal comes, however late."""


def test_an_interrupted_command_says_so_and_nothing_else(tmp_path: Path) -> None:
    """Ctrl-C reaches all processes of the terminal; 1 would show that there are findings.

    A shell that runs the suite in the background, with ``&``, lets all its children ignore the signal.
    """
    command = [sys.executable, "-m", "ticdc_lab.cli", "report", LOG, "--out", str(tmp_path / "r.html")]
    both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "cwd": ROOT}
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, start_new_session=True, env=environ, preexec_fn=heard, **both)
    assert process.stdout is not None and "engine:" in process.stdout.readline()
    os.killpg(process.pid, signal.SIGINT)
    said, _ = process.communicate(timeout=600)
    assert process.returncode == 130 and said.strip().endswith("ticdc-lab: interrupted"), said
    assert not [t for t in TRACES if t in said] and not (tmp_path / "r.html").exists()


@pytest.mark.parametrize("lost", ["in a callback", "by a library"])
def test_an_interrupt_that_is_lost_is_raised_again(monkeypatch: pytest.MonkeyPatch, lost: str) -> None:
    """Python ignores it in callbacks of weak references, as imports have them; libraries catch everything."""

    class Thing:
        pass

    @click.command()
    @click.option("--debug", is_flag=True)
    @common.guarded
    def work() -> None:
        if lost == "by a library":
            with suppress(BaseException):
                signal.raise_signal(signal.SIGINT)
            return
        thing = Thing()
        kept = weakref.ref(thing, lambda _: signal.raise_signal(signal.SIGINT))
        del thing
        Event().wait(60)
        raise AssertionError(f"the command went on without {kept()}")

    monkeypatch.setitem(main.commands, "work", work)
    heard = signal.signal(signal.SIGINT, signal.default_int_handler)  # a suite in the background ignores it
    try:
        before = signal.getsignal(signal.SIGINT), sys.unraisablehook
        found = CliRunner().invoke(main, ["work"])
        assert (found.exit_code, found.output) == (130, "ticdc-lab: interrupted\n")
        assert before == (signal.getsignal(signal.SIGINT), sys.unraisablehook)
    finally:
        signal.signal(signal.SIGINT, heard)


@pytest.mark.parametrize("stdout", ["closed", "full", "head"])
def test_an_output_that_nobody_reads_gives_no_trace(stdout: str, tmp_path: Path) -> None:
    """Closed, on a full device, or read up to the first line by the next command of a pipe."""
    ends = {"closed": ">&-", "full": ">/dev/full", "head": "| head -c 1"}[stdout]
    shell = f"{sys.executable} -m ticdc_lab.cli simulate --help {ends}"
    found = subprocess.run(["bash", "-c", shell], cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert not [t for t in TRACES if t in found.stderr], found.stderr


def test_a_command_whose_reader_has_gone_ends_without_a_word(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As by ``| head``, like a program that the signal ends; a pipe that breaks elsewhere is reported."""

    @click.command()
    @click.option("--elsewhere", is_flag=True)
    @click.option("--debug", is_flag=True)
    @common.guarded
    def say(elsewhere: bool) -> None:
        if elsewhere:
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")
        click.echo("a line")

    assert CliRunner().invoke(say, ["--elsewhere"]).exit_code == common.FAILED
    with monkeypatch.context() as closed:
        closed.setattr(sys, "stdout", None)
        with pytest.raises(SystemExit) as ended:
            say(["--elsewhere"])
    assert ended.value.code == common.FAILED and "Broken pipe" in capsys.readouterr().err
    read, write = os.pipe()
    with os.fdopen(write, "w") as out:
        monkeypatch.setattr(sys, "stdout", out)
        with pytest.raises(SystemExit) as ended:
            say(["--elsewhere"])
        assert ended.value.code == common.FAILED and "Broken pipe" in capsys.readouterr().err
        os.close(read)
        with pytest.raises(SystemExit) as ended:
            say([])
        assert ended.value.code == common.UNHEARD and sys.stdout is None and capsys.readouterr().err == ""
        with suppress(BrokenPipeError):
            out.close()


def test_an_address_of_spark_that_does_not_answer_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own client would try for ten minutes."""
    from ticdc_lab.engine.sessions import _require_answer
    from ticdc_lab.errors import SetupError

    for remote, words in (
        ("sc://127.0.0.1:1", "No Spark answers"), ("sc://", "no address of Spark"), ("sc://x:99999", "no address"),
    ):  # fmt: skip
        with pytest.raises(SetupError, match=words) as found:
            _require_answer(remote + "/;token=s3cr3t")
        assert "s3cr3t" not in str(found.value)
