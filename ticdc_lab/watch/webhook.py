"""Findings that open are sent to a URL in the JSON of Alertmanager's webhooks: few messages, each with a command."""

from __future__ import annotations

import http.client
import json
import queue
import shlex
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ticdc_lab.errors import SetupError, SourceError
from ticdc_lab.watch.folder import placed
from ticdc_lab.watch.kept import OPEN, KeptFinding

QUIET_S = 600.0
"""Of a guarantee there is one message in so long, by the clock of the watch."""

UNSENT, NOTED = "webhook-unsent.json", 10_000
"""In the state folder the numbers of findings that are not sent yet: the last ones. No more wait to be sent."""

SHOWN = 3
"""Findings in a message."""

WAITS_S = (1.0, 4.0, 15.0, 60.0)
"""Between the attempts of a message; then it is given up."""

TIMEOUT_S, WAITING, AT_THE_END_S = 10.0, 100, 15.0
"""For an answer; messages that wait, of more the new ones are given up; for what waits when the watch ends."""


class Webhook:
    """Where findings are sent, from a thread of its own: a receiver that is slow or away holds no watch up.

    ``url``: ``http://`` or ``https://``. ``state``: the state folder, for the command that shows all findings. There it
    notes which ones are not sent yet. ``now``: seconds since 1970: the clock of the watch. ``waits_s``: as of
    :data:`WAITS_S`. Raises SetupError: the URL is none.
    """

    def __init__(self, url: str, state: str, *, now: Callable[[], float], waits_s: tuple[float, ...] = WAITS_S) -> None:
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise SetupError("The webhook is no URL.", hint="--webhook http://HOST:PORT/PATH") from None
        self._shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"  # a path is often the secret
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None or port == 0:
            raise SetupError(f"{self._shown} cannot be sent to.", hint="--webhook http://HOST:PORT/PATH")
        self._url, self._state, self._now, self._waits_s = url, state, now, waits_s
        self._note, self._lock = Path(state) / UNSENT, threading.Lock()
        self._unsent = set[int](json.loads(self._note.read_text()) if self._note.exists() else ())
        self._failed: list[KeptFinding] = []
        self._held: dict[str, list[KeptFinding]] = {}
        self._sent_s: dict[str, float] = {}
        self._messages: queue.Queue[tuple[str, list[KeptFinding]] | None] = queue.Queue(WAITING)
        self._thread = threading.Thread(target=self._deliver, name="ticdc-lab-webhook", daemon=True)
        self._thread.start()

    def resume(self, findings: Iterable[KeptFinding]) -> None:
        """Take those that an earlier watch of the folder found open and could not send."""
        self.take([f for f in findings if f.status == OPEN and f.number in self._unsent])

    def take(self, opened: Iterable[KeptFinding]) -> int:
        """Send findings that have just opened, and those that waited long enough; call it without any, too.

        Returns: how many are not sent yet.
        """
        with self._lock:
            opened, self._failed = [*self._failed, *opened][-NOTED:], []
        for f in opened:
            self._held[f.guarantee] = [*self._held.get(f.guarantee, ()), f][-NOTED:]
        self._noted({f.number for f in opened} - self._unsent, set())
        now = self._now()
        for guarantee in [g for g in self._held if not 0 <= now - self._sent_s.get(g, -QUIET_S) < QUIET_S]:
            self._sent_s[guarantee] = now
            held = self._held.pop(guarantee)
            try:
                self._messages.put_nowait((guarantee, held))
            except queue.Full:
                self._given_up(guarantee, held, "too many messages wait")
        return len(self._unsent)

    def _noted(self, new: set[int], sent: set[int]) -> None:
        """Note which findings are not sent, for the next watch of the folder."""
        if new or sent:
            with self._lock:
                self._unsent = {*sorted((self._unsent | new) - sent)[-NOTED:]}
                with suppress(OSError):  # a full disk ends the watch in words, and no delivery
                    written = self._note.with_suffix(".new")
                    written.write_text(json.dumps(sorted(self._unsent)))
                    written.replace(self._note)

    def close(self) -> None:
        """Wait a bounded time for what is not delivered yet, and report what stays unsent."""
        for guarantee, held in self._held.items():
            self._given_up(guarantee, held, "the last message was sent a moment ago")
        self._held = {}
        with suppress(queue.Full):
            self._messages.put(None, timeout=AT_THE_END_S)
        self._thread.join(AT_THE_END_S)
        if self._thread.is_alive():
            print(
                f"ticdc-lab: {self._shown} does not accept messages, and findings are not sent."
                f" Next: ticdc-lab watch findings --state {shlex.quote(self._state)}",
                file=sys.stderr,
            )

    def _deliver(self) -> None:
        while (of := self._messages.get()) is not None:
            message = payload(*of, self._state)
            why = self._posted(message)
            for wait_s in self._waits_s:
                if not why:
                    break
                time.sleep(wait_s)
                why = self._posted(message)
            if why:
                self._given_up(*of, why)
            else:
                self._noted(set(), {f.number for f in of[1]})

    def _posted(self, message: Mapping[str, Any]) -> str:
        """Send it once; why it did not arrive."""
        body = json.dumps(message).encode()
        request = urllib.request.Request(self._url, data=body, headers={"Content-Type": "application/json"})
        try:
            with urllib.request.build_opener(_Stays).open(request, timeout=TIMEOUT_S):
                return ""
        except (OSError, ValueError, http.client.HTTPException) as error:
            return str(error) if isinstance(error, OSError) else type(error).__name__  # others quote the URL

    def _given_up(self, guarantee: str, found: list[KeptFinding], why: str) -> None:
        """For now: they are in the next message of their guarantee, or in one of the next watch."""
        with self._lock:
            self._failed += found
        n = len(found)
        print(
            f"ticdc-lab: {n} finding{'' if n == 1 else 's'} of {guarantee} not sent to {self._shown}: {why}."
            f" Next: ticdc-lab watch findings --state {shlex.quote(self._state)}",
            file=sys.stderr,
        )


class _Stays(urllib.request.HTTPRedirectHandler):
    """A redirected POST would become a GET without the message, and count as delivered."""

    def redirect_request(self, *_: Any) -> None:
        return None


def payload(guarantee: str, found: list[KeptFinding], state: str) -> dict[str, Any]:
    """The message of a guarantee's findings, as Alertmanager sends one to a webhook (version 4).

    Keys of rows stay in the state folder. A finding's number is its ``fingerprint``.
    """
    is_error = any(f.severity == "error" for f in found)
    labels = {"alertname": "TiCDCLabViolation", "guarantee": guarantee}
    n = len(found)
    shown = sorted(found, key=lambda f: (f.severity != "error", f.number))[:SHOWN]
    places: list[str | None] = [None] * len(shown)
    with suppress(SourceError, OSError):  # it is sent without them
        places = [f.get("place") for f in placed(shown, state)]
    alerts = [
        {
            "status": "firing",
            "labels": {**labels, "severity": "critical" if f.severity == "error" else "warning"},
            "annotations": {
                "summary": f.message, "command": f"ticdc-lab watch show {f.number} --state {shlex.quote(state)}",
                **({"place": place} if place else {}),
                **{name: str(v) for name in ("topic", "partition", "offset", "table", "commit_ts")
                   if (v := getattr(f, name)) is not None},
            },
            "startsAt": _rfc3339(f.found_s), "endsAt": "0001-01-01T00:00:00Z", "generatorURL": "",
            "fingerprint": f"{f.number:016x}",
        }
        for f, place in zip(shown, places, strict=True)
    ]  # fmt: skip
    return {
        "version": "4", "groupKey": f'{{}}:{{guarantee="{guarantee}"}}', "truncatedAlerts": n - len(alerts),
        "status": "firing", "receiver": "ticdc-lab", "groupLabels": {"guarantee": guarantee},
        "commonLabels": labels | ({} if is_error else {"severity": "warning"}),
        "commonAnnotations": {
            "summary": f"{n} new finding{'' if n == 1 else 's'} of {guarantee}",
            "command": f"ticdc-lab watch findings --state {shlex.quote(state)}",
        },
        "externalURL": "", "alerts": alerts,
    }  # fmt: skip


def _rfc3339(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
