"""The jars missing in the pyspark wheel: pinned, fetched once, checked by their SHA-256, used from a cache folder.

They are fetched in one go with the Ivy that comes inside pyspark. ``spark.jars.packages`` would resolve
transitively at every start, fetch 50 MB that pyspark already has, and trip over a half-filled local repository.
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import os
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ticdc_lab.engine.environment import cache_folder, java_options, require_java
from ticdc_lab.errors import SetupError

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Jar:
    """One pinned jar: its coordinate ``group:artifact:revision`` and the SHA-256 of its bytes."""

    coordinate: str
    sha256: str

    @property
    def file_name(self) -> str:
        """Name in the cache folder."""
        _, artifact, revision = self.coordinate.split(":")
        return f"{artifact}-{revision}.jar"


DELTA = (
    Jar("io.delta:delta-spark_4.2_2.13:4.4.0", "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead"),
    Jar("io.delta:delta-storage:4.4.0", "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc"),
)

KAFKA = (
    Jar(
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
        "64539c45e5d39f7ddb747312c239f38f5208d08c1a0ddf7d70beb2fbd9373705",
    ),
    Jar(
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
        "f2be3b76f9e6cbe63379d4e4e0dc14f59dbf056ae2ad16ff15ac108004c86767",
    ),
    Jar("org.apache.kafka:kafka-clients:3.9.2", "014b4ef36884478a932641818b080c36a8f8e2e92dc771e800c9d2694f4f83d8"),
    Jar("org.apache.commons:commons-pool2:2.13.1", "f77a5060d6936a9144023584232f9de3f2248f1abfe156e9d31795f18770674f"),
)


_SMALL_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""It runs for seconds: compiling it well would cost more than it gains."""


def jar_paths(jars: Sequence[Jar] = DELTA + KAFKA) -> list[Path]:
    """Paths of ``jars`` in the cache folder, each fetched if it is not there and checked either way.

    ``jars``: what is needed. Returns: one path a jar, in order. When all are there, nothing is started and no network
    is touched. Raises SetupError: a jar cannot be had, or what was had is not the pinned one.
    """
    folder = cache_folder() / "jars"
    if missing := [jar for jar in jars if not _is_there(jar, folder)]:
        _fetch(missing, folder)
    return [folder / jar.file_name for jar in jars]


def _is_there(jar: Jar, folder: Path) -> bool:
    path = folder / jar.file_name
    return path.exists() and _sha256(path) == jar.sha256


def _fetch(jars: Sequence[Jar], folder: Path) -> None:
    _LOG.warning("Fetching %s into %s", ", ".join(jar.coordinate for jar in jars), folder)
    java = require_java().executable
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".fetch-") as temporary:
            said = _ivy(java, jars, Path(temporary))
            for jar in sorted(jars, key=lambda jar: not _blamed(jar, said)):
                _keep(Path(temporary) / jar.file_name, jar, folder, said)
    except OSError as error:
        raise SetupError(
            f"The jar folder {folder} cannot be written: {error.strerror}.",
            hint="Run: export TICDC_LAB_CACHE=FOLDER_YOU_CAN_WRITE",
        ) from error


def _keep(got: Path, jar: Jar, folder: Path, said: str) -> None:
    """Move a jar to where it stays, if it came and is the pinned one."""
    if not got.exists():
        raise _unavailable(jar, folder, reason=_reason(said))
    if (found := _sha256(got)) != jar.sha256:
        raise _unavailable(jar, folder, reason=f"what came has SHA-256 {found}, but {jar.sha256} is pinned")
    os.replace(got, folder / jar.file_name)


def _blamed(jar: Jar, said: str) -> bool:
    """Whether Ivy did not find this very jar: where one is not, Ivy brings none."""
    organisation, artifact, revision = jar.coordinate.split(":")
    return f":: {organisation}#{artifact};{revision}: not found" in said


def _ivy(java: Path, jars: Sequence[Jar], folder: Path) -> str:
    wanted = folder / "ivy.xml"
    wanted.write_text(_ivy_file(jars), encoding="utf-8")
    options = [*java_options(_SMALL_JVM).split(), *_proxy_options()]
    command = [str(java), *options, "-jar", str(_ivy_jar()), "-cache", str(folder / "ivy")]
    if settings := os.environ.get("TICDC_LAB_IVY_SETTINGS"):
        command += ["-settings", settings]
    command += ["-confs", "default", "-ivy", str(wanted), "-retrieve", f"{folder}/[artifact]-[revision].[ext]"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=600, check=False)
    except subprocess.TimeoutExpired:
        return "no answer within 10 minutes"
    return done.stdout + done.stderr


def _ivy_file(jars: Sequence[Jar]) -> str:
    """What Ivy is to bring: each jar itself, and nothing that it needs in turn."""
    lines = (
        '<dependency org="{}" name="{}" rev="{}" transitive="false"/>'.format(*jar.coordinate.split(":"))
        for jar in jars
    )
    return (
        '<ivy-module version="2.0"><info organisation="ticdc_lab" module="jars"/>'
        '<configurations><conf name="default"/></configurations>'
        f'<dependencies defaultconf="default->master">{"".join(lines)}</dependencies></ivy-module>'
    )


def _ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")
    found = list(Path(spec.origin).parent.glob("jars/ivy-*.jar")) if spec and spec.origin else []
    if not found:
        raise SetupError(
            "pyspark with its jars is not installed in this Python, so no jar can be fetched.",
            hint="Run: ./lab setup --spark",
        )
    return found[0]


def _proxy_options() -> list[str]:
    """Java does not read ``https_proxy`` and its kin, which is what a user behind a proxy has set."""
    options = []
    for scheme, url in urllib.request.getproxies().items():
        if scheme not in ("http", "https"):
            continue
        try:
            proxy = urllib.parse.urlsplit(url if "//" in url else f"//{url}")
            place = proxy.hostname, proxy.port or 80
        except ValueError:
            raise SetupError(
                f"The environment's {scheme}_proxy is no URL.",
                hint=f"Run: export {scheme}_proxy=http://HOST:PORT, or unset it.",
            ) from None  # whose words may have its password
        if place[0]:
            options += [f"-D{scheme}.proxyHost={place[0]}", f"-D{scheme}.proxyPort={place[1]}"]
    return options


def _reason(said: str) -> str:
    """Ivy's own first complaint, without its decoration."""
    marks = ("UnknownHost", "timed out", "refused", "unreachable", "not found", "SSL", "xception", "denied")
    lines = [line.strip(" :\t")[:200] for line in said.splitlines() if line.strip(" :\t")]
    complaints = (line for mark in marks for line in lines if mark in line)
    return next(complaints, lines[-1] if lines else "no reason given")


def _unavailable(jar: Jar, folder: Path, *, reason: str) -> SetupError:
    return SetupError(
        f"The jar {jar.coordinate}, needed once, cannot be had: {reason}.",
        hint=f"Run, with a network: ./lab setup --spark   (or copy {jar.file_name} to {folder})",
    )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main() -> None:
    """Fetch what is missing; used by ``./lab``."""
    try:
        jar_paths()
    except SetupError as error:
        sys.exit(f"error: {error}")
