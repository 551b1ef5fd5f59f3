"""A changefeed's file as settings: TOML, the JSON that ``cdc cli changefeed query`` or ``create`` prints, the
open API's (v1 and v2), or etcd's; of any release since v4.0.

Every key is checked, nested ones too: TiCDC's command line refuses a file with a key that it does not know.
"""

from __future__ import annotations

import json
import re
import shlex
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit
from zoneinfo import ZoneInfo, available_timezones

from ticdc_lab.errors import DispatchError
from ticdc_lab.errors.bounded import parse_json, parse_toml, read_bounded
from ticdc_lab.errors.redaction import HIDDEN, is_secret
from ticdc_lab.errors.rewritten import undone
from ticdc_lab.settings.keys import CHOICES, FROM_URI, KEYS, KNOWN, RENAMED, TABLES, full_name, nearest, protocol_named
from ticdc_lab.settings.setting import Setting, Settings, require_name
from ticdc_lab.words import are, count

_JSON_NAMES: Mapping[str, str] = {
    "sink.advance-timeout": "sink.advance-timeout-in-sec",
    "sink.file-index-width": "sink.file-index-digit",
    "sink.mysql-config.max-multi-update-row-count": "sink.mysql-config.max-multi-update-row",
    "sink.pulsar-config.tls-certificate-path": "sink.pulsar-config.tls-key-file-path",
    "sink.pulsar-config.tls-private-key-path": "sink.pulsar-config.tls-certificate-file",
}
"""Keys with another name in JSON than in TOML."""

_BESIDE = frozenset({
    "upstream-id", "namespace", "keyspace", "id", "changefeed-id", "sink-uri", "create-time", "start-ts", "target-ts",
    "admin-job-type", "config", "replica-config", "state", "error", "creator-version", "resolved-ts", "checkpoint-ts",
    "checkpoint-time", "checkpoint-tso", "task-status", "gid", "maintainer-addr", "info", "status", "engine",
    "sort-engine", "sort-dir", "opts", "history", "sync-point-enabled", "sync-point-interval", "epoch", "warning",
    "is-new-architecture", "last-synced-ts", "last-error", "last-warning", "count", "taskStatus", "taskPositions",
    "error-history", "keyspace-id", "upstream-info", "timezone", "pd-addrs", "ca-path", "cert-path", "key-path",
    "cert-allowed-cn",
})  # fmt: skip
"""What is beside the settings in the JSON of a changefeed."""

_BESIDE_TYPES: Mapping[str, tuple[type[Any], str]] = {
    **dict.fromkeys(("info", "config", "replica-config"), (Mapping, "a table")),
    **dict.fromkeys(("sink-uri", "state", "namespace", "keyspace", "engine", "sort-engine", "sort-dir", "id",
                     "create-time", "creator-version"), (str, "a text")),
    **dict.fromkeys(("start-ts", "target-ts", "checkpoint-ts", "checkpoint-tso", "resolved-ts", "upstream-id", "epoch",
                     "admin-job-type"), (int, "a whole number")),
    "sync-point-enabled": (bool, "true or false"),
}  # fmt: skip
"""Types of those that have one in every release."""

_V1: Mapping[str, tuple[str, str | None]] = {
    "filter_rules": ("filter", "rules"),
    "ignore_txn_start_ts": ("filter", "ignore_txn_start_ts"),
    "mounter_worker_num": ("mounter", "worker_num"),
    "sink_config": ("sink", None),
}
"""Settings that the open API v1 takes beside each other: the table, and the key in it."""

_DOCUMENT = re.compile(r"(?m)^[ \t]*(?:[A-Za-z]+(?: [a-z]+)?: )?(?=\{\s*[\"}])")
"""Where JSON begins, behind what tiup, a log and etcdctl print before it, and words on its line."""

_OF_LOG = re.compile(r'\[\w+="(\{\\"(?:\\.|[^"\\])*\})"\]')
"""A changefeed in a line of cdc.log: ``[info="{\\"sink-uri\\":..}"]``."""

_OF_TERMINAL = re.compile(r"\s*```\w*|.*<< *['\"]?\w+['\"]?|EOF|(?:\[[\w.-]+@[^\]]*\]|[\w.-]+@[\w.-]+:\S*) ?[#$].*")
"""Lines around a file that was copied from a page or a terminal: fences, a shell's prompt, and its here-document."""

_URI = re.compile(r"(?:--sink-uri[= ]+|\A\s*)(['\"]?)(\w+://[^\s'\"]+)\1")
_IN_TOML = re.compile(r"(?m)^\s*(?:\[+[\w.-]+\]+\s*(?:#.*)?$|\w[\w.-]*\s+=)")
"""A line of TOML, and of no command."""
_REQUEST = re.compile(r"\s(?:-d|--data(?:-raw|-binary)?)[ =]*'(\{.*?\})'", re.DOTALL)
"""What ``curl`` sends to the open API."""
_NAMES_FILE = re.compile(r"--config[= ]+(['\"]?)([^\s'\"]+)\1")

_OF_OTHERS: Mapping[str, frozenset[str]] = {
    "TiCDC's server": frozenset((
        "addr", "advertise-addr", "capture-session-ttl", "cluster-id", "data-dir", "debug", "gc-ttl", "kv-client",
        "log", "log-file", "log-level", "newarch", "owner-flush-interval", "per-table-memory-quota",
        "processor-flush-interval", "security", "sorter", "tz",
    )),
    "sync-diff-inspector": frozenset((
        "check-data-only", "check-struct-only", "check-thread-count", "data-sources", "export-fix-sql", "table-configs",
        "task",
    )),
    "PD, TiKV or TiDB": frozenset((
        "coprocessor", "performance", "raftstore", "readpool", "replication", "rocksdb", "schedule", "server", "status",
        "storage", "tikv-client",
    )),
}  # fmt: skip
"""Keys of TOML that no changefeed has."""

_OTHERS: Sequence[tuple[frozenset[str], str]] = (
    (frozenset(("error-msg", "error-code")), "an error of TiCDC"),
    (frozenset(("synced",)), "the syncing state of a changefeed"),
    (frozenset(("capture-id",)), "the state of a processor"),
    (frozenset(("table-ids",)), "the tables of a processor"),
    (frozenset(("is-owner",)), "the state of a capture or a server"),
    (frozenset(("overwrite-checkpoint-ts",)), "a request that resumes a changefeed"),
    (frozenset(("target-capture-id",)), "a request that moves a table"),
    (frozenset(("stores",)), "what pd-ctl prints"),
    (frozenset(("regions",)), "what pd-ctl prints"),
    (frozenset(("isDdl",)), "a message of canal-json"),
    (frozenset(("payload", "schema")), "a message of debezium"),
)
"""Documents by their keys that are no settings of a changefeed."""
_EXPECTED = (
    "Give the TOML that `cdc cli changefeed create --config` takes, or the JSON that "
    "`cdc cli changefeed query --changefeed-id ID` prints."
)

_KINDS: Mapping[str, tuple[tuple[type, ...], str]] = {
    "bool": ((bool,), "bool"),
    "int": ((int,), "int"),
    "number": ((int, float), "number"),
    "text": ((str,), "str"),
    "texts": ((list,), "list"),
    "ints": ((list,), "list"),
    "tables": ((list,), "list"),
    "duration": ((str, int), "str"),
    "any": ((object,), ""),
}


@dataclass(frozen=True, slots=True)
class ChangefeedFile:
    """A changefeed's settings as its file has them."""

    name: str  # of the file, for people
    config: Mapping[str, Any]  # its tables, with TOML's names; every key is known
    sink_uri: str | None  # the sink-uri, from the file or given beside it
    # The same, one :class:`~ticdc_lab.settings.setting.Setting` a key; the sink-uri's parameters win.
    settings: Settings

    @property
    def uri(self) -> Mapping[str, str]:
        """The parameters of the sink-uri; empty without one."""
        query = urlsplit(self.sink_uri).query if self.sink_uri else ""
        return {k: v[-1] for k, v in parse_qs(query).items()}

    @property
    def refused(self) -> tuple[str, ...]:
        """Keys of it that cannot be used here, a sentence each."""
        return tuple(f"{s.name} is refused: {KEYS[s.name].depends}." for s in self.settings.known
                     if KEYS[s.name].bearing == "refused" and s.value)  # fmt: skip


def read_file(path: str | Path, *, sink_uri: str | None = None) -> ChangefeedFile:
    """Read the settings of a changefeed.

    ``path``: TOML, as ``cdc cli changefeed create --config`` takes it, or JSON, as ``cdc cli changefeed query`` and
    ``create`` print, the open API (v1 and v2) gives and takes, and etcd has it; lines before the JSON are skipped.
    ``sink_uri``: what ``--sink-uri`` was; wins over the file as in TiCDC. Raises DispatchError: the file cannot be
    read, is neither, or has a key that TiCDC does not know or a value of another type.
    """
    try:
        text = read_bounded(path)
    except (OSError, UnicodeDecodeError) as e:
        raise DispatchError(f"The changefeed file {path} cannot be read: {getattr(e, 'strerror', None) or e}.") from e
    except ValueError as e:
        raise DispatchError(f"The changefeed file {path} cannot be read: {e}.") from e
    return parse_file(text, name=str(path), sink_uri=sink_uri)


def parse_file(text: str, *, name: str, sink_uri: str | None = None) -> ChangefeedFile:
    r"""As :func:`read_file`, from the text of a file.

    Examples
    --------
    >>> parse_file('[sink.csv]\ndelimiter = ";"', name="c.toml").settings.value("csv.delimiter")
    ';'
    """
    found, is_json, skipped = _document(text, name)
    for owner, keys in _OF_OTHERS.items():
        if not is_json and (own := keys & found.keys()):
            what = ", ".join(sorted(own))
            raise DispatchError(f"{name} has settings of {owner} ({what}), not of a changefeed.", hint=_EXPECTED)
    for keys, what in _OTHERS:
        if is_json and keys <= {key.replace("_", "-") for key in found}:
            raise DispatchError(f"{name} has {what}, not the settings of a changefeed.", hint=_QUERY)
    _check_beside(found if is_json else {"sink-uri": found.get("sink-uri")}, name)
    uri: Any = found.get("sink_uri") if is_json else found.pop("sink-uri", None)
    config = _todays(_of_json(found, name) if is_json else found)
    inner: Mapping[str, Any] = info if is_json and isinstance(info := found.get("info"), Mapping) else found
    if is_json and uri is None:
        uri = inner.get("sink_uri", inner.get("sink-uri"))
    uri = sink_uri or (uri if isinstance(uri, str) else None)
    try:
        urlsplit(uri or "")
    except ValueError:  # whose words may have the password
        raise DispatchError(f"The sink-uri of {name} is no URI; expected such as kafka://HOST:PORT/TOPIC.") from None
    shown = is_json and bool(_SHOWN & (found.keys() | inner.keys()))
    unknown = _check(config, name, is_shown=shown)
    config = _without(config, frozenset(unknown)) if unknown else config
    evidence = f"file {name}"
    settings = Settings(tuple(Setting(n, v, "file", "given", evidence) for n, v in _leaves(config, "")))
    csv: Mapping[str, Any] = config.get("sink", {}).get("csv", {}) if settings.value("sink.protocol") == "csv" else {}
    for key, value in csv.items():
        expected, is_right = _TEXTS.get(f"sink.csv.{key}", ("", bool))
        if expected and not is_right(value):
            raise DispatchError(f"[CDC:ErrSinkInvalidConfig]csv {key} of {name} is {value!r}; expected {expected}.")
    return ChangefeedFile(
        name,
        config,
        uri,
        replace(settings | _of_uri(uri), notes=(*skipped, *_of_another(name, unknown), *_ignored_in(uri))),
    )


def _document(text: str, name: str) -> tuple[dict[str, Any], bool, tuple[str, ...]]:
    """The content of the text, whether it is JSON, and a sentence if there is more in the file."""
    begin, what = _DOCUMENT.search(text), "TOML"
    try:
        if not text.lstrip().startswith("{"):
            try:
                return parse_toml(text), False, ()
            except ValueError:
                if re.search(r'(?m)^\s*\[\s*\{\s*"', text):  # what `changefeed list` prints; no table of TOML begins so
                    raise _several(name, _listed(text)) from None
                if begin is None:
                    said: tuple[str, ...] = (f"{name} has lines beside the settings, which are not read.",)
                    if of := _NAMES_FILE.search(text):
                        said += (f"The command in {name} names the file of its settings, {of[2]}, which is not read.",)
                    return (*_copied(text), said)
        what, rest = "JSON", text[begin.end() if begin else 0 :]
        try:
            return _of_etcd(parse_json(rest), name), True, _beside(name, text[: -len(rest)])
        except json.JSONDecodeError as e:
            if e.msg != "Extra data":
                raise
            document, behind = rest[: e.pos], rest[e.pos :]
            if _DOCUMENT.search(behind):
                raise _several(name) from e
            return parse_json(document), True, _beside(name, text[: -len(rest)], behind)
    except ValueError as e:
        raise DispatchError(f"The changefeed file {name} is no {what}: {e}.", hint=_to_undo(text, name)) from e


def _to_undo(text: str, name: str) -> str:
    """What to do about a text that is neither TOML nor JSON."""
    for of, before in undone(text):
        with suppress(ValueError):
            found: Any = before
            while isinstance(found, str):
                found = (json.loads if found.lstrip()[:1] in ("{", '"') else parse_toml)(found)
            command = of.command.replace("{file}", shlex.quote(name))
            return f"It has {of.words}. Undo it, and give what results: {command} > changefeed"
    if re.search(r"(?m)^\s*(?:cdc_servers|server_configs|ticdc):\s*$", text):
        return f"It resembles a topology of tiup or a TidbCluster, which has settings of servers. {_EXPECTED}"
    is_yaml = len(re.findall(r"(?m)^\s*(?:- )?\w[\w-]*:(?:\s|$)", text)) > 1 and "=" not in text
    return f"It resembles YAML, which TiCDC does not take. {_EXPECTED}" if is_yaml else _EXPECTED


def _of_etcd(found: dict[str, Any], name: str) -> dict[str, Any]:
    """The changefeed in what ``etcdctl get -w json`` prints, with keys and values in base64; else what was found."""
    if not isinstance(pairs := found.get("kvs"), list):
        return found
    some = {b64decode(of.get("key", "")).decode(): b64decode(of.get("value", "")).decode() for of in pairs}
    infos = [value for key, value in some.items() if "/changefeed/info/" in key]
    if len(infos) > 1:
        raise _several(name)
    if not infos:
        raise DispatchError(
            f"{name} has no changefeed among its {count(len(some), 'key')} of etcd: {', '.join(list(some)[:3])}.",
            hint="etcdctl get --prefix /tidb/cdc/default/default/changefeed/info/ID -w json > changefeed.json",
        )
    settings: dict[str, Any] = parse_json(infos[0])
    return settings


def _copied(text: str) -> tuple[dict[str, Any], bool]:
    """The settings in a text that a page, a terminal or cdc.log has around them, and whether they are JSON."""
    if request := _REQUEST.search(text):
        return parse_json(request[1]), True
    if logged := _OF_LOG.search(text):
        return parse_json(json.loads(f'"{logged[1]}"')), True
    plain = "\n".join("" if _OF_TERMINAL.fullmatch(line) else line for line in text.splitlines())
    uri = _URI.search(text)
    found = {} if uri and not _IN_TOML.search(plain) else parse_toml(plain)
    return ({"sink-uri": uri[2]} if uri else {}) | found, False


_QUERY = "cdc cli changefeed query --changefeed-id ID > changefeed.json"


def _several(name: str, what: str = "changefeeds") -> DispatchError:
    return DispatchError(f"{name} lists {what}; expected one changefeed.", hint=_QUERY)


def _listed(text: str) -> str:
    """What a list of TiCDC's command line or open API is of."""
    is_of = {"is[-_]owner": "captures", "capture[-_]id": "processors"}
    return next((what for key, what in is_of.items() if re.search(f'"{key}"', text)), "changefeeds")


def _beside(name: str, *texts: str) -> tuple[str, ...]:
    n = sum(bool(line.strip()) for text in texts for line in text.replace("Info: ", "").splitlines())
    if not n:
        return ()
    return (f"{name} has {count(n, 'line')} beside the JSON, which {are(n)} not read.",)


def _of_json(found: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The settings in a JSON document, with TOML's names and without what is null."""
    if isinstance(found.get("items"), list):
        raise _several(name, _listed(json.dumps(found["items"][:1])))
    info = found.get("info")
    inner: Mapping[str, Any] = info if isinstance(info, Mapping) else found
    _check_beside(inner, name)
    config = next((inner[k] for k in ("config", "replica_config") if isinstance(inner.get(k), Mapping)), None)
    if config is None and {"state", "checkpoint_ts", "checkpoint_tso", "status"} & {*found}:
        raise DispatchError(
            f"{name} has no settings of the changefeed: it is the short form.",
            hint="Query it without --simple: cdc cli changefeed query --changefeed-id ID > changefeed.json",
        )
    if config is not None and (strange := [k for k in inner if k.replace("_", "-") not in _BESIDE]):
        raise DispatchError(_unknown(name, [(k, nearest(k, _BESIDE)) for k in strange]))
    if config is None:
        config = {k: v for k, v in inner.items() if k.replace("_", "-") not in _BESIDE and k not in _V1}
        for key, (table, name_in_it) in _V1.items():
            value = inner.get(key) if name_in_it is None else {name_in_it: inner.get(key)}
            own = [v for v in (config.get(table), value) if v is not None]
            odd = [v for v in own if not isinstance(v, Mapping)]  # which the check of types refuses
            if key in inner:
                config[table] = odd[0] if odd else {k: v for of in own for k, v in of.items()}
    translated = _kebab(config, "")
    assert isinstance(translated, dict)
    return translated


def _todays(config: dict[str, Any]) -> dict[str, Any]:
    """The same settings with the names that TiCDC gives them today."""
    for old, new in RENAMED.items():
        (*above, was), (*into, name) = old.split("."), new.split(".")
        holders: list[Any] = [config]
        for table in above:
            holders = [h.get(table) for h in holders if isinstance(h, dict)]
            holders = [m for h in holders for m in (h if isinstance(h, list) else [h])]
        for holder in [h for h in holders if isinstance(h, dict) and was in h]:
            value, target = holder.pop(was), holder
            if above != into:
                target = config
                for table in into:
                    target = target.setdefault(table, {})
            target.setdefault(name, value)
    return config


def _kebab(value: Any, path: str) -> Any:
    if isinstance(value, Mapping):
        out = {}
        for key, inner in value.items():
            here = f"{path}.{key.replace('_', '-')}".lstrip(".")
            here = _JSON_NAMES.get(here, here)
            if inner is not None:
                out[here.rpartition(".")[2]] = _kebab(inner, here)
        return out
    return [_kebab(v, path) for v in value] if isinstance(value, list) else value


def _check_beside(found: Mapping[str, Any], name: str) -> None:
    for key, value in found.items():
        kind, word = _BESIDE_TYPES.get(key.replace("_", "-"), (object, ""))
        if value is not None and (not isinstance(value, kind) or (isinstance(value, bool) and kind is int)):
            raise DispatchError(f"In {name} expected {key} to be {word}; found {value!r}.")


_SHOWN = frozenset(("state", "checkpoint_ts", "checkpoint_tso", "creator_version", "task_status", "status"))
"""Fields of a changefeed that TiCDC printed, so that each setting in it is one of its release."""


def _check(config: dict[str, Any], name: str, *, is_shown: bool) -> list[str]:
    """Raise unless TiCDC knows every key, and takes its value; the keys of another release, which it printed."""
    unknown: list[tuple[str, str | None]] = []
    for path, value in _entries(config, ""):
        if path in TABLES and path not in KEYS:
            if not isinstance(value, Mapping):
                raise DispatchError(f"In {name} expected a table [{path}]; found {value!r}.")
        elif path not in KEYS:
            parent = path.rpartition(".")[0]
            near = nearest(path.rpartition(".")[2], [k.rpartition(".")[2] for k in (*KEYS, *TABLES)
                                                     if k.rpartition(".")[0] == parent])  # fmt: skip
            elsewhere = next((k for k in KEYS if k.rpartition(".")[2] == path.rpartition(".")[2]), None)
            unknown.append((path, near or elsewhere or nearest(path, KEYS)))
        else:
            _check_kind(path, value, name)
    if unknown and not is_shown:
        raise DispatchError(
            _unknown(name, unknown),
            hint=f"Correct the key in {name}; TiCDC refuses it, too. All keys: docs/settings.md.",
        )
    return [path for path, _ in unknown]


def _without(config: Mapping[str, Any], paths: frozenset[str], table: str = "") -> dict[str, Any]:
    """The settings of a document without some keys."""
    kept: dict[str, Any] = {}
    for key, value in config.items():
        if (here := f"{table}.{key}".lstrip(".")) not in paths:
            some = value if isinstance(value, list) else [value]
            own = [_without(one, paths, here) if isinstance(one, Mapping) else one for one in some]
            kept[key] = own if isinstance(value, list) else own[0]
    return kept


def _of_another(name: str, unknown: Sequence[str]) -> tuple[str, ...]:
    said = f"{name} has settings that are not known here, of another release of TiCDC. They are not read: "
    return (f"{said}{', '.join(unknown)}.",) if unknown else ()


def _unknown(name: str, unknown: list[tuple[str, str | None]]) -> str:
    named = [f"{k} (the nearest is {near})" if near else k for k, near in unknown]
    return f"{name} has {'an unknown key' if len(named) == 1 else 'unknown keys'}: {', '.join(named)}."


def _check_kind(path: str, value: Any, name: str) -> None:
    kind, key = KEYS[path].kind, path.rpartition(".")[2]
    types, word = _KINDS[kind]
    if kind == "tables" and not (isinstance(value, list) and all(isinstance(v, Mapping) for v in value)):
        raise DispatchError(f"In {name} expected {key} = [{{matcher = [..], ..}}, ..]; found {value!r}.")
    if not isinstance(value, types) or (isinstance(value, bool) and kind != "bool"):
        raise DispatchError(f"In {name} expected {key} to be of type {word}; found {value!r}.")
    _check_choice(path, value if isinstance(value, list) else [value], f"In {name} {key}")
    if path in _MOST and isinstance(value, int) and not 0 <= value <= _MOST[path]:
        raise DispatchError(
            f"In {name} expected {key} {f'up to {_MOST[path]}' if value > 0 else 'from 1 on'}; found {value}."
        )
    if kind == "duration" and isinstance(value, str) and not _DURATION.fullmatch(value):
        raise DispatchError(f"In {name} expected {key} to be a duration such as 10m or 1h30m; found {value!r}.")
    inner = {"texts": (str, "texts"), "ints": (int, "whole numbers")}.get(kind)
    if inner is not None and isinstance(value, list) and not all(isinstance(v, inner[0]) for v in value):
        raise DispatchError(f"In {name} expected {inner[1]} in {key}; found {value!r}.")


_DURATION = re.compile(r"([+-]?(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+|[+-]?0|)")
"""What Go's ParseDuration takes."""

_MOST: Mapping[str, int] = {"sink.kafka-config.partition-num": (1 << 31) - 1}
"""Numbers that TiCDC reads into 32 bits."""


def is_zone(name: str) -> bool:
    """Whether a name is a time zone, as the IANA database has it."""
    try:
        return bool(ZoneInfo(name))
    except (ValueError, OSError, KeyError):
        return False


def _check_choice(path: str, values: Sequence[Any], said: str) -> None:
    if path == "time-zone" and (wrong := [value for value in values if not is_zone(value)]):
        near = nearest(wrong[0], sorted(available_timezones()))
        raise DispatchError(
            f"{said} is {wrong[0]!r}; expected the name of a time zone in the IANA database.",
            hint=f"Write {near!r}." if near else "For example time-zone=Asia/Shanghai.",
        )
    for value in values if path in CHOICES else ():
        written = value.lower() if path == "sink.protocol" and isinstance(value, str) else value
        is_none = written == "" and KEYS[path].kind == "text"  # as if it were not there
        if isinstance(written, str) and not is_none and written not in CHOICES[path]:
            near = nearest(value.lower(), CHOICES[path])
            hint = f"Write {near!r}." if near else f"Known are: {', '.join(CHOICES[path])}."
            raise DispatchError(
                f"{said} is {value!r}{f' (the nearest is {near!r})' if near else ''}; expected one of "
                f"{', '.join(CHOICES[path])}, or TiCDC refuses it.",
                hint=hint,
            )


def _entries(value: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    """Every key at every depth with its path, of unknown tables without their content."""
    for key, inner in value.items():
        here = f"{path}.{key}".lstrip(".")
        yield here, inner
        tables: list[Any] = inner if isinstance(inner, list) and here in TABLES else [inner]
        for table in tables:
            if isinstance(table, Mapping) and here in TABLES:
                yield from _entries(table, here)


_MAY_BE_EMPTY = ("sink.csv.quote", "sink.csv.null")
"""Texts that TiCDC uses as they are: without a quote it writes backslashes, and an empty text for NULL."""


def _leaves(value: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    """Settings of a checked file; a list of tables is one."""
    for key, inner in value.items():
        here = f"{path}.{key}".lstrip(".")
        if isinstance(inner, Mapping):
            yield from _leaves(inner, here)
        elif here == "sink.protocol" and inner != "":
            yield here, protocol_named(inner)
        elif inner != "" or here in _MAY_BE_EMPTY:  # else an empty text is none, in TiCDC
            yield here, HIDDEN if is_secret(here) else tuple(inner) if isinstance(inner, list) else inner


def _of_uri(uri: str | None) -> list[Setting]:
    if not uri:
        return []
    given = {k: v[-1] for k, v in parse_qs(urlsplit(uri).query).items()}
    found = []
    for parameter, name in FROM_URI.items():
        if (text := given.get(parameter)) is not None:
            found.append(Setting(name, value_of(name, text, said=f"{parameter}={text!r} in the sink-uri"), "file",
                                 "given", f"{parameter} of the sink-uri"))  # fmt: skip
    return found


_OF_KAFKA = frozenset({k.rpartition(".")[2] for k in KEYS if k.startswith("sink.kafka-config.")} | {
    *FROM_URI, "max-retry", "transaction-atomicity",
})  # fmt: skip
"""Parameters that a sink-uri of Kafka may have."""


def _ignored_in(uri: str | None) -> tuple[str, ...]:
    """Parameters of a sink-uri that TiCDC passes over without a word."""
    split, found = urlsplit(uri or ""), []
    if split.scheme.startswith("kafka"):  # object stores have more parameters than are known here
        for parameter in parse_qs(split.query, keep_blank_values=True).keys() - _OF_KAFKA:
            near = nearest(parameter, _OF_KAFKA)
            like = f" (the nearest is {near})" if near else ""
            found.append(f"TiCDC ignores the unknown parameter {parameter}{like} of the sink-uri.")
    return tuple(sorted(found))


def value_of(name: str, text: str, *, said: str = "") -> Any:
    """The value of a setting from a text, as in a sink-uri or behind ``--option``.

    Raises DispatchError: the text is no value of its type.
    """
    kind = KNOWN[name].kind
    if name == "sink.protocol":
        _check_choice(name, [text], said or name)
        return protocol_named(text)
    if name in _TEXTS:
        expected, is_right = _TEXTS[name]
        if not is_right(text):
            raise DispatchError(f"{said or f'{name}={text!r}'}: expected {expected}.")
        return text
    if kind == "bool" and text.lower() in ("true", "false", "1", "0", "t", "f"):  # as Go's ParseBool
        return text.lower() in ("true", "1", "t")
    if kind == "int" and text.isascii() and text.isdigit() and int(text[:20]) <= _MOST.get(name, 1 << 64):
        return int(text)
    if kind in ("text", "duration"):
        _check_choice(name, [text], said or name)
        return text
    if kind == "texts":
        return tuple(text.split(","))
    number = f"a whole number{f' up to {_MOST[name]}' if name in _MOST else ''}"
    raise DispatchError(
        f"[CDC:ErrSinkInvalidConfig]{said or f'{name}={text!r}'}: expected "
        f"{ {'bool': 'true or false', 'int': number}.get(kind, 'a changefeed file') }."
    )


_ESCAPES = {"\\r": "\r", "\\n": "\n", "\\t": "\t", "\\u0001": "\x01"}
"""What is literal in a delimiter and a terminator."""


def _chooses(text: str) -> bool:
    """Whether each part names a table and columns: ``SCHEMA.TABLE:COLUMN,COLUMN;..``."""
    parts = [part.partition(":") for part in text.split(";")]
    return all("." in table and columns for table, _, columns in parts)


_TEXTS: Mapping[str, tuple[str, Callable[[str], bool]]] = {
    "sink.csv.delimiter": ("at least one character", bool),
    "sink.terminator": ("at least one character", bool),
    "sink.csv.quote": ("at most one byte", lambda text: len(text.encode()) <= 1),
    "sink.csv.columns": ("SCHEMA.TABLE:COLUMN,COLUMN;..", _chooses),
    "debezium-binary-handling-mode": ("base64 or hex", ("base64", "hex").__contains__),
}
"""Allowed texts, where a reader cannot continue with another."""


def given_settings(options: Mapping[str, str], *, file: str | None = None, sink_uri: str | None = None) -> Settings:
    """What a command line gives: a changefeed's file, and options that are settings; others are left alone.

    ``options``: name to value, as behind ``--option``. ``file``, ``sink_uri``: as for :func:`read_file`. Raises
    DispatchError: as :func:`read_file`, or an option's value is none of its setting.
    """
    known = Settings() if file is None else read_file(file, sink_uri=sink_uri).settings
    for name, given in options.items():
        full, text = require_name(name) if name.startswith(_CSV) else full_name(name), given
        for written, meant in _ESCAPES.items() if full in ("sink.csv.delimiter", "sink.terminator") else ():
            text = text.replace(written, meant)
        if not text and full in CHOICES:
            raise DispatchError(f"--option {name} is empty; expected one of {', '.join(CHOICES[full])}.")
        if is_setting(name) and text != "auto":
            known = known.with_option(full, value_of(full, text), evidence=f"--option {name}")
    return known


_CSV = "csv."
"""Begins options that are settings of csv and of nothing else."""


def options_of_source(options: Mapping[str, str]) -> dict[str, str]:
    """Those options that are no setting of a changefeed: of Kafka, or of a dump's form."""
    return {name: text for name, text in options.items() if not is_setting(name) and not name.startswith(_CSV)}


def of_earlier(fields: Mapping[str, Any]) -> Settings:
    """Settings of storage files as states of 2026-11 and before have them, by names such as ``csv_null``."""
    told = {full_name(re.sub("^csv_", "csv.", name)): value for name, value in fields.items()}
    return Settings(tuple(
        Setting(name, value, "option", "given", f"--option {name}") for name, value in told.items()
        if isinstance(value, str | bool) and value != "auto"
    ))  # fmt: skip


def is_setting(name: str) -> bool:
    """Whether an option of this name is a setting of a changefeed."""
    full = full_name(name)
    return full in KNOWN and KNOWN[full].bearing == "read"
