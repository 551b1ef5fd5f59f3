"""As much of S3 as reading takes, over a folder: objects with ranges, and lists in pages; it notes its calls."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

PAGE = 100
BUCKET = "logs"


class S3:
    """What is in the bucket, and the calls so far."""

    def __init__(self, root: Path) -> None:
        self.keys = {p.relative_to(root).as_posix(): p for p in sorted(root.rglob("*")) if p.is_file()}
        self.calls: list[str] = []
        self.refused: set[str] = set()
        """Keys whose content no user may read."""
        self.port = 0

    @property
    def lists(self) -> int:
        """How many lists were asked for."""
        return sum("list-type" in call for call in self.calls)

    def url(self, path: str, *, user: str = "") -> str:
        """A source of the bucket."""
        at = f"{user}@" if user else ""
        return f"s3://{at}{BUCKET}/{path}?endpoint_override=127.0.0.1:{self.port}&scheme=http&region=us-east-1"

    def listed(self, query: dict[str, list[str]]) -> str:
        """A page of a list: keys with a prefix, or what is common to them up to a delimiter."""
        prefix, delimiter = query.get("prefix", [""])[0], query.get("delimiter", [""])[0]
        after = query.get("continuation-token", [""])[0]
        found: dict[str, Path | None] = {}
        for key, path in self.keys.items():
            if key.startswith(prefix):
                head, cut, _ = key[len(prefix) :].partition(delimiter) if delimiter else (key, "", "")
                found[prefix + head + cut if cut else key] = None if cut else path
        names = [n for n in sorted(found) if n > after]
        page = names[: min(PAGE, int(query.get("max-keys", [str(PAGE)])[0]))]
        more = len(page) < len(names)
        said = "".join(
            f"<CommonPrefixes><Prefix>{escape(n)}</Prefix></CommonPrefixes>"
            if (path := found[n]) is None
            else f"<Contents><Key>{escape(n)}</Key><Size>{path.stat().st_size}</Size>"
            f"<LastModified>{datetime.fromtimestamp(int(path.stat().st_mtime), UTC):%FT%T.000Z}</LastModified>"
            "</Contents>"
            for n in page
        )
        token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more else ""
        about = f"<Name>{BUCKET}</Name><Prefix>{escape(prefix)}</Prefix>"
        head = f"<KeyCount>{len(page)}</KeyCount><IsTruncated>{str(more).lower()}</IsTruncated>{token}"
        return f"<ListBucketResult>{about}{head}{said}</ListBucketResult>"


@contextmanager
def serving(root: Path) -> Iterator[S3]:
    """Serve a folder as the bucket :data:`BUCKET`."""
    store = S3(root)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_HEAD(self) -> None:
            """Of an object or of the bucket."""
            self._answer(body=False)

        def do_GET(self) -> None:
            """An object, a range of it, or a list."""
            self._answer(body=True)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: what was asked is in ``calls``."""

        def _answer(self, *, body: bool) -> None:
            store.calls.append(f"{self.command} {self.path}")
            at = urlsplit(self.path)
            _, bucket, key = (*unquote(at.path).split("/", 2), "")[:3]
            path = store.keys.get(key)
            if bucket != BUCKET or (key and path is None):
                self._send(404, b"<Error><Code>NoSuchKey</Code></Error>", {}, body)
            elif path is None:
                query = {k: [unquote(v) for v in vs] for k, vs in parse_qs(at.query).items()}
                self._send(200, store.listed(query).encode() if body else b"", {}, body)
            elif key in store.refused and body:
                self._send(403, b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>", {}, body)
            else:
                self._object(path.read_bytes(), body)

        def _object(self, content: bytes, body: bool) -> None:
            wanted = self.headers.get("Range")
            if wanted is None:
                self._send(200, content, {}, body)
                return
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            low, high = int(first), min(int(last or len(content) - 1), len(content) - 1)
            self._send(206, content[low : high + 1], {"Content-Range": f"bytes {low}-{high}/{len(content)}"}, body)

        def _send(self, status: int, content: bytes, headers: dict[str, str], body: bool) -> None:
            self.send_response(status)
            whole = {"Content-Length": str(len(content)), "Last-Modified": "Fri, 20 Nov 2026 00:00:00 GMT", **headers}
            for name, value in whole.items():
                self.send_header(name, value)
            self.end_headers()
            if body:
                self.wfile.write(content)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        store.port = server.server_address[1]
        Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        try:
            yield store
        finally:
            server.shutdown()
