from __future__ import annotations

from pathlib import Path

import pytest

from ticdc_lab.engine import environment
from ticdc_lab.errors import SetupError


def fake_java(folder: Path, *, script: str) -> Path:
    """Put an executable ``bin/java`` into ``folder`` and give ``folder``."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(0o755)
    return folder


def version_says(text: str) -> str:
    """Give a shell script that prints ``text`` as Java prints its version."""
    return f"""echo 'openjdk version "{text}" 2024-01-16' >&2"""


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """Hide every Java of this machine."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    return monkeypatch


def complaint() -> SetupError:
    """Give the error of ``require_java``: one sentence, and a command."""
    with pytest.raises(SetupError) as caught:
        environment.require_java()
    assert caught.value.message.endswith(".")
    assert "\n" not in caught.value.message
    assert "Run: " in caught.value.hint
    return caught.value


def test_the_java_of_this_machine_is_fit() -> None:
    """The tests need Java 17 or newer, and it is recognised."""
    assert environment.require_java().version >= 17


def test_no_java(no_java: pytest.MonkeyPatch) -> None:
    """Without any Java the sentence reports it and names a command."""
    assert "No Java found" in complaint().message


@pytest.mark.parametrize(("text", "version"), [("1.8.0_392", 8), ("11.0.2", 11), ("16", 16)])
def test_java_too_old(no_java: pytest.MonkeyPatch, tmp_path: Path, text: str, version: int) -> None:
    """Java before 17 is refused by its version, in the old numbering too."""
    no_java.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", script=version_says(text))))
    assert f"is Java {version}, but Spark needs 17" in complaint().message


@pytest.mark.parametrize("text", ["17.0.15", "21.0.1", "25", "26-ea"])
def test_java_new_enough(no_java: pytest.MonkeyPatch, tmp_path: Path, text: str) -> None:
    """Java 17 and everything after it is taken, with and without minor numbers."""
    no_java.setenv("JAVA_HOME", str(fake_java(tmp_path / "new", script=version_says(text))))
    assert environment.require_java().version == int(text[:2])


def test_java_home_without_java(no_java: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A JAVA_HOME that leads nowhere is named, since Spark would follow it."""
    no_java.setenv("JAVA_HOME", str(tmp_path))
    error = complaint()
    assert str(tmp_path) in error.message
    assert "unset JAVA_HOME" in error.hint


def test_java_home_wins_over_the_path(no_java: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An old JAVA_HOME is refused even where the PATH has a good Java, as Spark would take the old one."""
    good = fake_java(tmp_path / "good", script=version_says("17.0.1"))
    no_java.setenv("PATH", str(good / "bin"))
    assert environment.require_java().executable == good / "bin" / "java"
    no_java.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", script=version_says("11.0.2"))))
    assert "unset JAVA_HOME" in complaint().hint


def test_java_that_does_not_run(no_java: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What a broken Java shows is passed on (macOS has such a stub)."""
    script = "echo 'The operation could not be completed. Unable to locate a Java Runtime.' >&2; exit 1"
    no_java.setenv("JAVA_HOME", str(fake_java(tmp_path / "stub", script=script)))
    assert "Unable to locate a Java Runtime" in complaint().message


def test_java_without_the_vector_module(no_java: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A trimmed Java that does not have the module Spark starts with is refused before Spark fails on it."""
    script = f'case "$1" in --add*) echo "Module not found" >&2; exit 1;; esac\n{version_says("17.0.1")}'
    no_java.setenv("JAVA_HOME", str(fake_java(tmp_path / "trimmed", script=script)))
    assert "jdk.incubator.vector" in complaint().message


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"TICDC_LAB_CACHE": "/a/b", "XDG_CACHE_HOME": "/x"}, "/a/b"),
        ({"XDG_CACHE_HOME": "/x"}, "/x/ticdc_lab"),
        ({"HOME": "/home/u"}, "/home/u/.cache/ticdc_lab"),
    ],
)
def test_cache_folder(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: str) -> None:
    """Our own variable goes before the user's cache folder, and that before the home folder."""
    for name in ("TICDC_LAB_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert environment.cache_folder() == Path(expected)


@pytest.mark.parametrize("group", ["/", "/docker/0123", "/docker/not-there"])
@pytest.mark.parametrize("is_first", [True, False])
def test_memory_is_that_of_the_container(tmp_path: Path, group: str, is_first: bool) -> None:
    """A command of a container that counts the memory of its machine is ended without a word."""
    whole = environment.memory_bytes(tmp_path)
    assert whole > 4 << 20
    (tmp_path / "proc/self").mkdir(parents=True)
    controllers, name = ("memory", "memory.limit_in_bytes") if is_first else ("", "memory.max")
    (tmp_path / "proc/self/cgroup").write_text(f"9:name=systemd:/\n4:{controllers}:{group}\n1:cpu:/\n")
    top = tmp_path / "sys/fs/cgroup" / controllers
    (top / "docker/0123").mkdir(parents=True)
    own = top if group.endswith("not-there") else top / group.strip("/")
    (own / name).write_text(f"{4 << 20}\n")
    assert environment.memory_bytes(tmp_path) == 4 << 20
    (own / name).write_text(f"{1 << 63}\n" if is_first else "max\n")
    assert environment.memory_bytes(tmp_path) == whole
