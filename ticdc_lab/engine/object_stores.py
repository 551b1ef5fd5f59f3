"""Object stores: what lies behind a URL that pyarrow reads by itself, on every engine and without Java.

Credentials come from where the store's own tools take them (``AWS_ACCESS_KEY_ID``, a profile, an instance's role, ..)
or from the URL's query (``endpoint_override``, ``region``, ``scheme``); they stay in the URL, which no message shows.
"""

from __future__ import annotations

import errno
import io
import os
import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, BinaryIO, NamedTuple
from urllib.parse import quote

from ticdc_lab.errors import SourceError
from ticdc_lab.errors.redaction import without_secrets
from ticdc_lab.errors.whole_files import room_for
from ticdc_lab.words import first_line

SCHEMES = ("s3", "gs", "gcs", "abfs", "abfss")
"""Of URLs that are read without Hadoop, on either engine."""

_AT_ONCE = 16
"""Calls that are under way: a store answers each after some ten milliseconds, however small it is."""

_LEVELS = 2
"""How deep folders are listed one by one, to be listed side by side from there on."""

_OF_A_URL = "%/:=&?~#+!$,;'@()*[]"

_ALONE = "the file"
"""How the copy of a file is called that the URL names."""

_SMALL = 4 << 20
"""Bytes of a file that is fetched ahead."""

_READ = 4 << 20
"""Bytes that are asked for at once where a file is read line by line: Python's own 8 KiB would be a call each."""


_COPIES: list[tempfile.TemporaryDirectory[str]] = []
"""What was copied, which goes with the process."""


class Stored(NamedTuple):
    """A file of a store: its path below the folder, its bytes, and when it was written (ns), where that is known."""

    path: str
    size: int
    changed_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Store:
    """A folder or file behind a URL; workers get it as it is and open their own connection."""

    url: str  # with the credentials that it may hold
    copy: str = ""  # a local folder that holds the files too, for workers that reach no network

    @classmethod
    def of(cls, source: str) -> Store | None:
        """The store that a source names; None for a path, and for a URL that Hadoop reads."""
        scheme, slashes, _ = source.partition("://")
        return cls(source) if slashes and scheme.lower() in SCHEMES else None

    @property
    def shown(self) -> str:
        """The URL without what may be secret."""
        return without_secrets(self.url)

    @property
    def root(self) -> str:
        """The folder as the store's file system names it: bucket and path."""
        return _connected(self.url)[1]

    def named(self, path: str) -> str:
        """How a file below the folder is called."""
        return f"{self.shown.rstrip('/')}/{path}" if path else self.shown

    def below(self, name: str) -> str:
        """The path of what :meth:`named` calls so."""
        return name.removeprefix(self.shown).removeprefix("/")

    def is_folder(self) -> bool:
        """Whether files lie below it. Raises SourceError: the store cannot be asked, or nothing is there."""
        with self._said():
            found = self._system.get_file_info(self.root).type
        if found.name == "NotFound":
            raise SourceError(f"There is nothing at {self.shown}.", hint="Check `bucket` and path in the URL.")
        return bool(found.name == "Directory")

    def size(self) -> int:
        """Bytes of the file that the URL names."""
        with self._said():
            return int(self._system.get_file_info(self.root).size)

    def files(self) -> list[Stored]:
        """Every file below the folder, in order of paths; a call for each thousand files and each upper folder.

        Raises SourceError: the store cannot be asked.
        """
        found, below = list[Stored](), [self.root]
        with self._said(), ThreadPoolExecutor(_AT_ONCE) as pool:
            for _ in range(_LEVELS):
                if len(below) >= _AT_ONCE:
                    break
                listed = [info for infos in pool.map(self._list, below) for info in infos]
                found += self._plain(listed)
                below = [info.path for info in listed if info.type.name == "Directory"]
            for infos in pool.map(lambda folder: self._list(folder, recursive=True), below):
                found += self._plain(infos)
        return sorted(found)

    def _list(self, folder: str, *, recursive: bool = False) -> Any:
        from pyarrow import fs  # here: which engine runs is chosen before anything is imported

        return self._system.get_file_info(fs.FileSelector(folder, recursive=recursive))

    def _plain(self, infos: Iterable[Any]) -> Iterator[Stored]:
        at = len(self.root) + 1
        return (Stored(i.path[at:], i.size, i.mtime_ns) for i in infos if i.is_file)

    def copied(self, files: Iterable[str]) -> Store:
        """The store with its files on this machine, in a folder that goes with the process.

        The embedded engine computes in a network of its own, from which nothing is reached.

        ``files``: paths below the folder; one that leads out of it is left out. Raises SourceError: one cannot be read,
        or no space is left.
        """
        _COPIES.append(tempfile.TemporaryDirectory(prefix="ticdc_lab-store-"))
        root = os.path.realpath(_COPIES[-1].name)
        safe = [f for f in files if (os.path.normpath(f) == f and not f.startswith(("/", ".."))) or not f]
        with self._said(), room_for(root), ThreadPoolExecutor(_AT_ONCE) as pool:
            for _ in pool.map(partial(self._copy, root), safe):
                pass
        return replace(self, copy=root)

    def _copy(self, root: str, path: str) -> None:
        place = os.path.join(root, path or _ALONE)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with self.open(path) as read, open(place, "wb") as written:
            shutil.copyfileobj(read, written, _SMALL)

    @contextmanager
    def open(self, path: str = "") -> Iterator[BinaryIO]:
        """A file below the folder, or the one that the URL names. Raises SourceError: it cannot be read."""
        if self.copy:
            with open(os.path.join(self.copy, path or _ALONE), "rb") as local:
                yield local
            return
        try:
            with self._system.open_input_file(self._place(path)) as file, io.BufferedReader(file, _READ) as buffered:
                yield buffered
        except OSError as fault:
            if fault.errno == errno.ENOSPC:  # of this machine, where it is copied
                raise
            said = without_secrets(first_line(fault)[:300])
            raise SourceError(
                f"{self.named(path)} cannot be read: {said}",
                hint=f"Check that {self.named(path)} is still there and that the credentials may read it.",
            ) from None

    def read(self, path: str, most: int) -> bytes:
        """A file as a whole; at most one byte more than ``most``. Raises OSError: it cannot be read."""
        with self._system.open_input_file(self._place(path)) as file:
            return bytes(file.read(most + 1))

    def ahead(self, files: Sequence[tuple[str, int | None]], most: int) -> Iterator[Callable[[], bytes]]:
        """What reads each of some files (path and size), in their order; small ones are fetched side by side before."""
        waiting: deque[Future[bytes] | str] = deque()
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for path, size in files:
                small = size is not None and size <= _SMALL
                waiting.append(pool.submit(self.read, path, most) if small else path)
                if len(waiting) == _AT_ONCE:
                    yield self._reads(waiting.popleft(), most)
            while waiting:
                yield self._reads(waiting.popleft(), most)

    def _reads(self, waited: Future[bytes] | str, most: int) -> Callable[[], bytes]:
        return (lambda: self.read(waited, most)) if isinstance(waited, str) else waited.result

    def _place(self, path: str) -> str:
        return f"{self.root}/{path}" if path else self.root

    @property
    def _system(self) -> Any:
        return _connected(self.url)[0]

    @contextmanager
    def _said(self) -> Iterator[None]:
        try:
            yield
        except OSError as fault:
            said = without_secrets(first_line(fault)[:300])
            raise SourceError(
                f"{self.shown} cannot be listed: {said}",
                hint="Check the URL, `AWS_REGION` or `region`, and the credentials.",
            ) from None


@lru_cache(maxsize=16)
def _connected(url: str) -> tuple[Any, str]:
    """A file system and the path in it.

    Raises SourceError: the URL is none, or names what this pyarrow has no support for.
    """
    from pyarrow import fs

    try:
        system, place = fs.FileSystem.from_uri(quote(url, safe=_OF_A_URL))  # people write blanks
    except (ValueError, OSError, NotImplementedError) as fault:
        said = without_secrets(first_line(fault)[:300])
        raise SourceError(
            f"{without_secrets(url)} cannot be opened: {said}", hint="Check the URL: SCHEME://BUCKET/PATH"
        ) from None
    return system, place.rstrip("/")
