"""What lies in a folder: names and sizes, nothing read."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from ticdc_lab.errors import SourceError
from ticdc_lab.sources.storage_layout import Refused

_STATUS = re.compile(r"\w*FileStatus\{path=(.*); isDirectory=false; length=(\d+); .*", re.DOTALL)
_BETWEEN = "\x00"
"""Stands in no path."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A file: its path below the root, with slashes, and its size in bytes where it is known."""

    path: str
    size: int | None


def local_files(root: Path) -> Iterator[Listed | Refused]:
    """Every file below a folder of this machine.

    Links are refused, whatever they lead to, and so is what is no plain file: the sink writes neither, and a link can
    leave the folder.
    """
    waiting = [("", str(root))]
    while waiting:
        below, folder = waiting.pop()
        with os.scandir(folder) as entries:
            for entry in entries:
                path = below + entry.name
                if entry.is_symlink():
                    yield Refused(path, "link", f"{path!r} is a symbolic link, which is not followed")
                elif entry.is_dir(follow_symlinks=False):
                    waiting.append((path + "/", entry.path))
                elif stat.S_ISREG((found := entry.stat(follow_symlinks=False)).st_mode):
                    yield Listed(path, found.st_size)
                else:
                    yield Refused(path, "no-plain-file", f"{path!r} is a device, a pipe or a socket")


def hadoop_files(spark: SparkSession, url: str) -> Iterator[Listed | Refused]:
    """Every file below a URL that the session's Hadoop configuration can read.

    Four calls to the JVM, however many files there are: object stores list a whole prefix at once. Do not send it to
    a local file system with many files: Hadoop runs a program for each to tell its owner (5 ms a file).

    Raises
    ------
    SourceError
        Nothing can be listed there.
    """
    jvm: Any = spark._jvm
    try:
        root = jvm.org.apache.hadoop.fs.Path(url)
        system = root.getFileSystem(spark._jsc.hadoopConfiguration())
        whole = str(system.makeQualified(root).toString()).rstrip("/") + "/"
        listed = jvm.org.apache.hadoop.util.functional.RemoteIterators.toList(system.listFiles(root, True))
    except Py4JJavaError as e:
        said = str(e.java_exception.toString()).splitlines()[0]
        raise SourceError(f"{url} cannot be listed: {said}", hint="Check the URL and its credentials.") from e
    text = jvm.org.apache.commons.lang3.StringUtils.join(listed, _BETWEEN)
    for status in text.split(_BETWEEN) if text else ():
        found = _STATUS.fullmatch(status)
        if not found:
            raise SourceError(f"{url}: the file system describes a file in an unknown form: {status[:200]}")
        if not found[1].startswith(whole):
            yield Refused(found[1], "unsafe-path", f"{found[1]!r} does not lie below {whole!r}")
        else:
            yield Listed(found[1].removeprefix(whole), int(found[2]))
