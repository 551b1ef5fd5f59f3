from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ticdc_lab.engine import jars
from ticdc_lab.engine.environment import JAVA_READS
from ticdc_lab.engine.jars import Jar, jar_paths
from ticdc_lab.errors import SetupError

CONTENT = b"the bytes of a jar"
JAR = Jar("org.example:thing_2.13:1.2", hashlib.sha256(CONTENT).hexdigest())


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Give an empty jar folder that the package takes for its own."""
    monkeypatch.setenv("TICDC_LAB_CACHE", str(tmp_path))
    folder = tmp_path / "jars"
    folder.mkdir()
    return folder


def ivy_that_writes(content: bytes | None, monkeypatch: pytest.MonkeyPatch) -> list[Jar]:
    """Put a fetcher in Ivy's place that writes ``content``; give the list of what it was asked for."""
    asked: list[Jar] = []

    def fetch(_: Path, wanted: list[Jar], folder: Path) -> str:
        for jar in wanted:
            asked.append(jar)
            if content is not None:
                (folder / jar.file_name).write_bytes(content)
        return "\t:: org.example#thing: not found"

    monkeypatch.setattr(jars, "_ivy", fetch)
    return asked


def test_fetched_once_then_taken_from_the_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A jar is fetched when it is missing and never again."""
    asked = ivy_that_writes(CONTENT, monkeypatch)
    assert jar_paths([JAR]) == jar_paths([JAR]) == [folder / "thing_2.13-1.2.jar"]
    assert asked == [JAR]
    assert [path.name for path in folder.iterdir()] == [JAR.file_name]


def test_no_process_when_all_are_there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the jars in the folder no program is started, so nothing can touch the network."""

    def started(*_: Any, **__: Any) -> None:
        raise AssertionError("a program was started")

    (folder / JAR.file_name).write_bytes(CONTENT)
    monkeypatch.setattr(subprocess, "run", started)
    assert jar_paths([JAR]) == [folder / JAR.file_name]


def test_a_damaged_jar_is_fetched_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A jar cut short on the disk is noticed by its hash and replaced."""
    (folder / JAR.file_name).write_bytes(CONTENT[:5])
    asked = ivy_that_writes(CONTENT, monkeypatch)
    assert jar_paths([JAR])[0].read_bytes() == CONTENT
    assert asked == [JAR]


def test_what_is_missing_comes_in_one_go(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One Java brings all that is missing, and nothing that is there."""
    other = Jar("org.example:other:3", JAR.sha256)
    (folder / JAR.file_name).write_bytes(CONTENT)
    asked = ivy_that_writes(CONTENT, monkeypatch)
    assert jar_paths([other, JAR, JAR]) == [folder / name for name in ("other-3.jar", *[JAR.file_name] * 2)]
    assert asked == [other]


def test_the_jar_that_is_not_found_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ivy brings none where it does not find one; the sentence names that one and not the first."""
    other = Jar("org.example:other:3", JAR.sha256)
    monkeypatch.setattr(jars, "_ivy", lambda *_: "\t\t:: org.example#other;3: not found\n")
    with pytest.raises(
        SetupError, match=r"^The jar org\.example:other:3, needed once, cannot be had: org\.example#other"
    ):
        jar_paths([JAR, other])


def test_another_jar_than_the_pinned_one_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes with another hash never reaches the folder."""
    ivy_that_writes(b"something else", monkeypatch)
    with pytest.raises(SetupError, match=f"SHA-256 .* but {JAR.sha256} is pinned"):
        jar_paths([JAR])
    assert list(folder.iterdir()) == []


def test_another_collector_than_ours_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Java that fetches jars would not start with two."""
    begun: list[list[str]] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        begun.append(command)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    for name in JAVA_READS:
        monkeypatch.delenv(name, raising=False)
    jars._ivy(Path("java"), [JAR], tmp_path)
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:+UseG1GC")
    jars._ivy(Path("java"), [JAR], tmp_path)
    assert [["-XX:+UseSerialGC" in command, "-XX:TieredStopAtLevel=1" in command] for command in begun] == [
        [True, True],
        [False, True],
    ]


def test_no_network_the_first_time(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A jar that cannot be had (here the real Ivy and an unreachable repository) is one sentence and a command."""
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="r"/><resolvers>'
        '<ibiblio name="r" m2compatible="true" root="https://127.0.0.1:9/"/></resolvers></ivysettings>'
    )
    monkeypatch.setenv("TICDC_LAB_IVY_SETTINGS", str(settings))
    with pytest.raises(SetupError) as caught:
        jar_paths([JAR])
    assert caught.value.message.startswith("The jar org.example:thing_2.13:1.2, needed once, cannot be had: ")
    assert "\n" not in caught.value.message
    assert "./lab setup" in caught.value.hint
    assert str(folder) in caught.value.hint
    assert list(folder.iterdir()) == []


def test_a_folder_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A cache folder that cannot be made (here a file is in its place) is detected from a failed fetch."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("TICDC_LAB_CACHE", str(tmp_path / "file"))
    ivy_that_writes(CONTENT, monkeypatch)
    with pytest.raises(SetupError, match="cannot be written") as caught:
        jar_paths([JAR])
    assert "TICDC_LAB_CACHE" in caught.value.hint


def test_the_proxy_of_the_environment_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Java reads no ``https_proxy``, so its host and port continue as Java's own options."""
    monkeypatch.setattr("urllib.request.getproxies", lambda: {"https": "http://me:pw@proxy:3128", "no": "x"})
    assert jars._proxy_options() == ["-Dhttps.proxyHost=proxy", "-Dhttps.proxyPort=3128"]


@pytest.mark.parametrize("url", ["http://me:s3cret@proxy:31x", "http://me:s3cret@[proxy"])
def test_a_proxy_that_is_no_url_is_named_without_its_password(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """Python's own words for it would show the whole URL."""
    monkeypatch.setattr("urllib.request.getproxies", lambda: {"no": "[a", "https": url})
    with pytest.raises(SetupError, match="https_proxy is no URL") as refused:
        jars._proxy_options()
    assert "s3cret" not in f"{refused.value!r} {refused.value.hint}"
