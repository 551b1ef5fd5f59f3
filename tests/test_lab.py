"""The bootstrap script."""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import conftest
import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """Load the script as a module that works in an empty folder and starts nothing."""
    loader = importlib.machinery.SourceFileLoader("lab", str(ROOT / "lab"))
    spec = importlib.util.spec_from_loader("lab", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader.exec_module(module)
    (tmp_path / "requirements.lock").write_text("thing==1\nuv==2 \\\n    --hash=sha256:3\nzipp==4\n")
    (tmp_path / "requirements-spark.lock").write_text("pyspark==1\n")
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / ".venv/bin").mkdir(parents=True)
    here = {name: tmp_path / path.relative_to(ROOT) for name, path in vars(module).items() if isinstance(path, Path)}
    replaced = {
        **here,
        "require_java": lambda: None,
        "usable": lambda _: True,
        "call": Calls(),
        "output": lambda *_: "",
    }
    for name, value in replaced.items():
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(module.shutil, "which", lambda _: None)
    monkeypatch.setattr(module.os, "environ", dict(os.environ))
    return module


class Calls(list[str]):
    """Represents ``call``: remembers the commands; those that contain ``failing`` fail."""

    failing = "nothing"

    def __call__(self, *command: object, cwd: Path | None = None) -> int:
        words = " ".join(map(str, command))
        self.append(words)  # also from the thread of what runs beside the tests
        return int(self.failing in words)

    def installs(self) -> list[str]:
        """Which lock was installed, each time."""
        return [command.split("/")[-1] for command in self if command.endswith(".lock") and "lab-uv" not in command]

    def count_of(self, words: str) -> int:
        """How many commands contain ``words``."""
        return sum(words in command for command in self)

    def first(self, words: str) -> int:
        """Which command is the first that contains ``words``."""
        return next(i for i, command in enumerate(self) if words in command)


def test_set_up_is_done_once(lab: ModuleType) -> None:
    """A second set-up starts nothing at all."""
    lab.set_up(spark=False)
    assert lab.call.installs() == ["requirements.lock"]
    started = list(lab.call)
    lab.set_up(spark=False)
    assert lab.call == started


@pytest.mark.parametrize("name", ["requirements.lock", "pyproject.toml"])
def test_another_pin_means_another_set_up(lab: ModuleType, name: str) -> None:
    """The stamp holds for exactly these two files."""
    lab.set_up(spark=False)
    (lab.ROOT / "requirements-spark.lock").write_text("changed")
    lab.set_up(spark=False)
    assert len(lab.call.installs()) == 1
    (lab.ROOT / name).write_text("changed")
    lab.set_up(spark=False)
    assert len(lab.call.installs()) == 2


def test_spark_comes_when_it_is_first_needed(lab: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """The light set asks for no Java and fetches no jar; from then on the full set is the one that is kept."""
    asked: list[str] = []
    monkeypatch.setattr(lab, "require_java", lambda: asked.append("java"))
    lab.set_up(spark=False)
    assert (asked, lab.call.count_of("jars.main()")) == ([], 0)
    lab.set_up(spark=True)
    assert (asked, lab.call.count_of("jars.main()")) == (["java"], 1)
    spark_is_here(lab)
    lab.set_up(spark=False)
    lab.set_up(spark=True)
    assert lab.call.installs() == ["requirements.lock", "requirements-spark.lock"]
    (lab.ROOT / "pyproject.toml").write_text("changed")
    lab.set_up(spark=False)
    assert lab.call.installs()[2:] == ["requirements-spark.lock"], "the light set would put the client into Spark"


def spark_is_here(lab: ModuleType) -> None:
    """Lay down what shows pyspark from its client."""
    (lab.VENV / "lib/python3.11/site-packages/pyspark/jars").mkdir(parents=True)


@pytest.mark.parametrize(
    ("words", "spark"),
    [(["setup"], False), (["setup", "--spark"], True), (["test"], True), (["docs"], True)],
)
def test_which_command_needs_spark(
    lab: ModuleType, monkeypatch: pytest.MonkeyPatch, words: list[str], spark: bool
) -> None:
    """Tests and documentation do; a set-up does when it is informed."""
    asked: list[bool] = []
    monkeypatch.setattr(lab, "set_up", lambda spark: asked.append(spark))
    assert lab.main(words) == 0
    assert asked == [spark]


def test_help_of_the_tests_starts_nothing(lab: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither a set-up nor lint and types, which take minutes before pytest would show its options."""
    assert lab.main(["test", "--help"]) == 0 and lab.main(["setup", "-h"]) == 0
    assert lab.call == [] and capsys.readouterr().out.count("./lab test --quick") == 2


def test_a_set_up_with_a_strange_option_does_nothing(lab: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    """It shows how it is called."""
    assert lab.main(["setup", "--sparkle"]) == 2
    assert lab.call == [] and "./lab setup --spark" in capsys.readouterr().out


def test_a_failed_set_up_leaves_no_stamp(lab: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a failure, also one that follows a good set-up, the next call installs again."""
    lab.set_up(spark=False)
    (lab.ROOT / "pyproject.toml").write_text("changed")
    monkeypatch.setattr(lab.call, "failing", "install")
    with pytest.raises(lab.Stop, match=r"could not be installed[\s\S]*Run: \./lab setup   "):
        lab.set_up(spark=False)
    with pytest.raises(lab.Stop, match=r"could not be installed[\s\S]*Run: \./lab setup --spark   "):
        lab.set_up(spark=True)
    assert not lab.STAMP.exists()


def test_a_missing_jar_leaves_no_stamp(lab: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the jars the set-up is not done; their own error has reported why."""
    monkeypatch.setattr(lab.call, "failing", "jars.main()")
    with pytest.raises(SystemExit):
        lab.set_up(spark=True)
    assert not lab.STAMP.exists()


def test_pip_where_uv_fails(lab: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """When uv is there but cannot install, pip is tried."""
    monkeypatch.setattr(lab.shutil, "which", lambda tool: "/bin/uv" if tool == "uv" else None)
    monkeypatch.setattr(lab.call, "failing", "/bin/uv")
    lab.set_up(spark=False)
    assert lab.STAMP.exists()
    installers = [Path(command.split()[0]).name for command in lab.call if "requirements.lock" in command]
    assert installers == ["uv", "python"]


def test_pip_where_no_uv_can_be_had(lab: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    """Pip is asked for uv, by its hash and nothing else; where that gives none, pip installs all and
    this is reported.
    """
    lab.set_up(spark=False)
    assert lab.ONLY_UV.read_text() == "uv==2 \\\n    --hash=sha256:3\n"
    fetched, installed = [command for command in lab.call if "--require-hashes" in command]
    assert fetched.endswith(f"-m pip --disable-pip-version-check install --quiet --require-hashes -r {lab.ONLY_UV}")
    assert "-m pip" in installed and installed.endswith(f"--require-hashes -r {lab.LOCK}")
    assert "Installing 3 pinned packages with pip (1 to 2 min)" in capsys.readouterr().out


def test_the_uv_that_pip_fetched(lab: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """It asks the index that pip is ordered to ask, unless the user has named another one."""
    said = "global.index-url='https://a/simple'\nglobal.timeout='9'\n:env:.extra-index-url='https://b/simple'\n"
    monkeypatch.setattr(lab, "output", lambda *_: said)
    monkeypatch.setenv("UV_INDEX", "https://mine/simple")
    (lab.BIN / "uv").touch()
    lab.set_up(spark=False)
    assert [command.split()[0] for command in lab.call if "requirements.lock" in command] == [str(lab.BIN / "uv")]
    assert lab.os.environ["UV_DEFAULT_INDEX"] == "https://a/simple"
    assert lab.os.environ["UV_INDEX"] == "https://mine/simple"


def test_the_client_goes_before_spark_comes(lab: ModuleType) -> None:
    """They share a folder: pip removes the client first, once; uv's ``sync`` removes what the lock does not have by
    itself.
    """
    lab.set_up(spark=True)
    removed, installed = (lab.call.first(words) for words in ("uninstall --quiet --yes pyspark-client", "-spark.lock"))
    assert removed < installed
    assert lab.os.environ["DIST_EXTRA_CONFIG"] == str(lab.STORED)
    spark_is_here(lab)
    (lab.ROOT / "pyproject.toml").write_text("changed")
    lab.set_up(spark=True)
    assert (lab.call.count_of("uninstall"), lab.call.count_of("-spark.lock")) == (1, 2)


def test_a_python_without_ensurepip(lab: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Debian splits venv off: the sentence names its package."""
    monkeypatch.setattr(lab, "usable", lambda _: False)
    monkeypatch.setattr(lab.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(lab.Stop, match=r"apt-get install -y python3\.\d+-venv"):
        lab.set_up(spark=False)


def test_a_python_too_old(lab: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a newer Python on the PATH the version that is there and the one needed are reported."""
    monkeypatch.setattr(lab, "PYTHON_MIN", (99, 0))
    monkeypatch.setattr(lab.shutil, "which", lambda tool: "/bin/dnf" if tool == "dnf" else None)
    with pytest.raises(lab.Stop, match=r"^This is Python 3\..* needs 3\.11 or newer\.\n\nRun: sudo dnf install"):
        lab.require_python()


def test_every_check_runs_and_a_failed_one_counts(
    lab: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A lint error hides no test, and is not forgotten."""
    monkeypatch.setattr(lab.call, "failing", "/ruff check")
    assert lab.test(["-k", "a b"]) == 1
    assert sorted(Path(command.split()[0]).name for command in lab.call) == ["mypy", "pytest", "ruff", "ruff"]
    assert "Failed: ruff check\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("rest", "workers"),
    [
        ([], True),
        (["-m", "soak", "--durations=9"], True),
        (["tests/test_x.py"], False),
        (["-x", "tests/test_x.py::test_y"], False),
    ],
)
def test_the_whole_suite_has_two_workers(lab: ModuleType, rest: list[str], workers: bool) -> None:
    """One file alone starts sooner in one process; what the user asks for comes last and wins."""
    (lab.ROOT / "tests").mkdir()
    (lab.ROOT / "tests/test_x.py").write_text("")
    assert lab.test(rest) == 0
    [options] = [words[1:] for words in map(str.split, lab.call) if words[0].endswith("/pytest")]
    assert options == [*(["-n", "3", "--dist", "loadfile", "--no-loadscope-reorder"] if workers else []), *rest]


def test_a_quick_run_leaves_types_out(lab: ModuleType) -> None:
    """Lint and the tests, to which the option goes."""
    assert lab.test(["--quick"]) == 0
    assert sorted(word.split()[0].rpartition("/")[2] for word in lab.call) == ["pytest", "ruff", "ruff"]
    assert [words for words in lab.call if "pytest" in words and words.endswith("--quick")]


def test_no_java_stops_before_anything_is_installed(tmp_path: Path) -> None:
    """A Python without any library and a JAVA_HOME that leads nowhere: one sentence, a command, exit code 2."""
    for name in ("ticdc_lab", "lab", "pyproject.toml", "requirements-spark.lock"):
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, tmp_path / name)
    done = subprocess.run(
        [sys.executable, "-I", "-S", tmp_path / "lab", "setup", "--spark"],
        env=os.environ | {"JAVA_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert re.fullmatch(r"error: JAVA_HOME is .*, where there is no bin/java\.\n\nRun: .*\n", done.stderr)


def test_old_pythons_can_read_the_script() -> None:
    """A Python that is too old gets as far as the sentence that reports it."""
    ast.parse((ROOT / "lab").read_text(), feature_version=(3, 7))


def test_ci_runs_the_command_of_the_readme() -> None:
    """What continuous integration runs is what a reader is ordered to run."""
    readme = re.findall(r"^(\./lab \w+)", (ROOT / "README.md").read_text(), re.M)
    assert readme[:2] == ["./lab demo", "./lab test"]
    assert "./lab test --java " in (ROOT / ".ci/run").read_text()


def test_what_starts_java_is_left_out_while_one_works() -> None:
    """Tests of Spark and of Kafka, by what marks them; one that is not marked fails where it starts Spark."""
    plain = Path(__file__)
    both = ROOT / "tests/conformance/test_engines_agree.py"
    for path, asked, marked, left_out in (
        (plain, ["spark"], None, False), (plain, ["classic"], None, True), (plain, ["broker"], None, True),
        (plain, [], "spark", True), (both, [], None, True),
    ):  # fmt: skip
        item: Any = SimpleNamespace(path=path, fixturenames=asked, get_closest_marker={"spark": marked}.get)
        assert conftest._starts_java(item) == left_out
    begun: list[object] = []

    def noting(process: object, args: object) -> None:
        begun.append(args)

    begin = conftest._not_java(noting)
    begin(None, ["java", "-version"])
    begin(None, "ls")
    assert begun == [["java", "-version"], "ls"]
    for command in (["/opt/bin/spark-class", "x"], [Path("bin/spark-submit")]):
        with pytest.raises(pytest.fail.Exception, match="mark it `spark`"):
            begin(None, command)


def test_it_asks_for_java_before_anything_is_installed() -> None:
    """What it takes of the package imports nothing but Python's own modules."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from ticdc_lab.engine import environment as e; e.require_java()"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code, ROOT], capture_output=True, text=True, check=False)
    assert done.returncode == 0 or "SetupError" in done.stderr, done.stderr


def test_a_notebook_is_the_workbench_on_a_log(lab: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each log has a notebook of its own, so that none takes another's place."""
    ran: list[list[str]] = []
    monkeypatch.setattr(lab, "call", lambda *command, **_: ran.append([str(word) for word in command]) or 0)
    assert lab.notebook([]) == lab.notebook(["a/topic.jsonl.gz"]) == 0
    assert [Path(command[-1]).name for command in ran] == ["workbench.ipynb", "workbench-topic-jsonl-gz.ipynb"]
    assert ran[1][1:4] == ["workbench", "a/topic.jsonl.gz", "--out"]
