"""What is written is whole or not there, and a full disk is reported in words."""

from __future__ import annotations

import atexit
import errno
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ticdc_lab.errors import SourceError, TiCDCLabError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FORBIDDEN = (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR, errno.EISDIR,
              errno.EEXIST)  # fmt: skip
SAID_OF_A_FULL_DISK = ("No space left on device", "Disk quota exceeded", "File too large")
"""As engines and libraries pass on the system's error."""


def temporary_folder(name: str = "") -> Path:
    """Make a temporary folder that goes with this process, not with what first asks for it."""
    folder = Path(tempfile.mkdtemp(prefix=f"ticdc_lab-{name}"))
    atexit.register(shutil.rmtree, str(folder), ignore_errors=True)
    return folder


_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]+):/")  # of one letter it is a drive
_FILE = re.compile(r"file:(//|(?=/))", re.IGNORECASE)


def scheme_of(place: str) -> str | None:
    """The scheme of a URL in lower case, also with one slash; None for a path of this machine, with ``file:`` or not.

    Examples
    --------
    >>> [scheme_of(place) for place in ("S3A://b/x", "dbfs:/x", "FILE:/x", "file:///x", "a/b:/c", "x:y")]
    ['s3a', 'dbfs', None, None, None, None]
    >>> [scheme_of(place) for place in ("C:/x", "2026-11-27T10:/x", "a_b:/x", "git+ssh://x")]
    [None, None, None, 'git+ssh']
    """
    found = _SCHEME.match(place)
    return None if found is None or (scheme := found[1].lower()) == "file" else scheme


def names_table(out: str) -> bool:
    """Whether a place to write to is a Delta table's: a URL, ``DIR/``, ``DIR.delta``, or a folder that is there.

    Any other name is a file's, with any ending.
    """
    place = local_path(out)
    return place is None or out.endswith(("/", ".delta")) or place.is_dir()


def bare_path(place: str) -> str:
    """A path without a leading ``file://``, or ``file:`` as Java writes it.

    Examples
    --------
    >>> [bare_path(place) for place in ("/x", "file:/x", "FILE:///x", "file:x")]
    ['/x', '/x', '/x', 'file:x']
    """
    path = place[found.end() :] if (found := _FILE.match(place)) else place
    longest = max((len(os.fsencode(name)) for name in path.split(os.sep)), default=0)
    if scheme_of(path) is None and (longest > _MOST_NAME or len(os.fsencode(path)) > _MOST_PATH):
        raise SourceError(
            f"The path {path[:_SHOWN]}… is too long: {len(path):,} characters, {longest:,} bytes in its longest name.",
            hint=f"A file system takes names of {_MOST_NAME} bytes: check what was pasted with ls.",
        )
    return path


_MOST_NAME, _MOST_PATH, _SHOWN = 255, 4095, 60


def local_path(place: str) -> Path | None:
    """A place as a path of this machine, or None for a URL of another kind."""
    return Path(bare_path(place)).absolute() if scheme_of(place) is None else None


@contextmanager
def room_for(place: str | Path, *, keep: bool = False) -> Iterator[None]:
    """A full disk, or a place that cannot be written, becomes a :class:`SourceError`; a folder begun here is removed.

    With ``keep`` it stays: its content is whole so far, and is continued.
    """
    path = Path(bare_path(str(place)))
    is_new = scheme_of(str(place)) is None and not path.exists()
    try:
        yield
    except TiCDCLabError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _FORBIDDEN and _is_of(path, error.filename):
            raise SourceError(
                f"Cannot write {place}: {error.strerror}.",
                hint=f"Check what is there, and who may write: ls -ld {shlex.quote(str(path.parent))}",
            ) from error
        if not _is_full(error):
            raise
        if is_new and not keep and path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        raise SourceError(
            f"No space is left on the device where {place} is written; "
            + ("what was written whole stays." if keep else "nothing of it is left that looks whole."),
            hint="Make room there, or raise the limit of a file's size (ulimit -f). The temporary folder may be on the "
            "same device: see TMPDIR. Then run it again.",
        ) from error


def _is_of(place: Path, name: object) -> bool:
    """Whether a file is a part of a place, or lies beside it as its part until it is whole."""
    return isinstance(name, str) and (place.parent == Path(name).parent or place in (Path(name), *Path(name).parents))


def _is_full(error: BaseException) -> bool:
    while True:
        if getattr(error, "errno", None) in _FULL or any(said in str(error) for said in SAID_OF_A_FULL_DISK):
            return True
        cause = error.__cause__ or error.__context__
        if cause is None:
            return False
        error = cause


def write_whole(target: Path, text: str) -> None:
    """Put text into a file, the same bytes on every system: the whole of it, or the file stays as it was.

    A link stays one. What is no file, a device or a pipe, is written to: another in its place would be found by all.
    """
    if target.exists() and not target.is_file():
        with room_for(target):
            target.write_text(text, encoding="utf-8", newline="\n")
        return
    target = target.resolve()
    part = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with room_for(target):
            part.write_text(text, encoding="utf-8", newline="\n")
            part.replace(target)
    finally:
        with suppress(OSError):  # there is none where nothing may be written
            part.unlink()
