"""Commands of DDL as a Service: ``serve`` is a worker, ``audit`` reads what it wrote."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ticdc_lab.cli.common import CLEAN, FAILED, FINDINGS, guarded, main
from ticdc_lab.words import count

if TYPE_CHECKING:
    from ticdc_lab.ddl_core.settings import Versions
    from ticdc_lab.ddl_service.etcd_rpc import Etcd
    from ticdc_lab.ddl_service.node import Backend


class _Seconds(click.FloatRange):
    """A time: neither infinite nor no number."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found = float(super().convert(value, param, ctx))
        if not math.isfinite(found):
            self.fail(f"{value} is no number of seconds", param, ctx)
        return found


SECONDS = _Seconds(0.0, 86_400.0)
FORMAT = click.Choice(["text", "json"])
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
ETCD = ("etcd", "etcd_ca", "etcd_cert", "etcd_key", "etcd_user", "etcd_password_file")


@main.group("ddl-service")
def ddl_service() -> None:
    """Run workers that own the DDL of many clusters."""


class Where(NamedTuple):
    """Where the workers' store is: an etcd, or else a folder."""

    folder: Path
    etcd: Etcd | None

    def open(self) -> Backend:
        """Open it."""
        from ticdc_lab.ddl_service.etcd_store import EtcdStore
        from ticdc_lab.ddl_service.sqlite_store import SqliteStore

        return SqliteStore(self.folder) if self.etcd is None else EtcdStore(self.etcd)

    def expect_store(self) -> None:
        """Refuse a folder that no worker has used: a question makes no store."""
        from ticdc_lab.ddl_service.sqlite_file import FILE as STORE

        if self.etcd is None and not (self.folder / STORE).exists():
            raise click.BadParameter(
                f"there is no store in {self.folder}; give the --store of the workers", param_hint="--store"
            )


def store_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add where the store is, and give it to the command as one value."""

    def run(*args: Any, store: Path, **kwargs: Any) -> None:
        command(*args, where=Where(store, _etcd_of(**{name: kwargs.pop(name) for name in ETCD})), **kwargs)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__click_params__ = getattr(command, "__click_params__", [])  # type: ignore[attr-defined]
    options = (
        click.option(
            "--store", default="ddl-service", show_default=True, type=click.Path(file_okay=False, path_type=Path),
            help="The folder of the embedded store; workers that share it are one service.",
        ),
        click.option("--etcd", metavar="HOST:PORT,..", help="An etcd instead of --store; https:// in front for TLS."),
        click.option("--etcd-ca", type=FILE, help="The authority that signed etcd's certificate (PEM)."),
        click.option("--etcd-cert", type=FILE, help="A certificate for etcd; needs --etcd-key."),
        click.option("--etcd-key", type=FILE, help="The key of the certificate."),
        click.option("--etcd-user", default="", help="The user, if etcd requires one; needs --etcd-password-file."),
        click.option("--etcd-password-file", type=FILE, help="A file with that user's password."),
    )  # fmt: skip
    wrapped: Callable[..., Any] = run
    for option in reversed(options):
        wrapped = option(wrapped)
    return wrapped


def _etcd_of(
    etcd: str | None, etcd_ca: Path | None, etcd_cert: Path | None, etcd_key: Path | None, etcd_user: str,
    etcd_password_file: Path | None,
) -> Etcd | None:  # fmt: skip
    from ticdc_lab.ddl_service.etcd_rpc import Etcd

    if etcd is None:
        return None
    if (etcd_cert is None) != (etcd_key is None):
        raise click.BadParameter("give both", param_hint="--etcd-cert, --etcd-key")
    if bool(etcd_user) != bool(etcd_password_file):
        raise click.BadParameter("give both", param_hint="--etcd-user, --etcd-password-file")
    password = secret_of(etcd_password_file, "--etcd-password-file") or ""
    return Etcd(etcd, etcd_ca, etcd_cert, etcd_key, etcd_user, password)


def version_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add what is supported."""
    oldest = click.option(
        "--oldest", default="v6.1.0", show_default=True, help="The oldest cluster version that is served."
    )
    own = click.option(
        "--version", default="v8.5.0", show_default=True, help="The newest cluster version that is served."
    )
    return own(oldest(command))


def versions_of(version: str, oldest: str) -> Versions:
    """Read what is supported."""
    from ticdc_lab.ddl_core.settings import Versions, parsed, unsupported

    if not parsed(version) or not parsed(oldest):
        raise click.BadParameter("expected vMAJOR.MINOR.PATCH", param_hint="--version, --oldest")
    if unsupported(version, Versions(version, oldest)):
        raise click.BadParameter(f"{oldest} is newer than {version}", param_hint="--oldest")
    return Versions(version, oldest)


def secret_of(path: Path | None, option: str = "--secret-file") -> str | None:
    """Read a secret from a file."""
    if path is None:
        return None
    secret = path.read_text(encoding="utf-8", errors="replace").strip()
    if not secret or not secret.isascii() or not secret.isprintable():
        raise click.BadParameter(f"{path} has no line of ASCII text", param_hint=option)
    return secret


@ddl_service.command()
@click.option(
    "--listen", default="127.0.0.1:10080", show_default=True, metavar="HOST:PORT", help="Address of the HTTP API."
)
@click.option(
    "--node-id", default="ddl-service-node-1", show_default=True, help="Name of this worker, unique in its service."
)
@store_options
@click.option(
    "--ttl",
    default=10.0,
    show_default=True,
    type=_Seconds(0.5, 3600.0),
    help="Session TTL without heartbeats.",
)
@version_options
@click.option("--secret-file", type=FILE, help="A file with the secret that callers must send.")
@click.option("--tls-cert", type=FILE, help="The worker's certificate (PEM).")
@click.option("--tls-key", type=FILE, help="The key of the certificate.")
@click.option("--tls-client-ca", type=FILE, help="The authority that must have signed callers' certificates (PEM).")
@click.option("--log-format", default="text", show_default=True, type=FORMAT, help="Form of the log lines on stderr.")
@click.option("--debug", is_flag=True, help="Show the whole trace of an error.")
@guarded
def serve(
    where: Where, listen: str, node_id: str, ttl: float, version: str, oldest: str, secret_file: Path | None,
    tls_cert: Path | None, tls_key: Path | None, tls_client_ca: Path | None, log_format: str,
) -> None:  # fmt: skip
    """Run one worker; several with the same store are one service.

    By default only this host can connect. Another --listen requires --secret-file or certificates of callers.
    """
    from ticdc_lab.ddl_core.settings import Duties
    from ticdc_lab.ddl_service import logs
    from ticdc_lab.ddl_service.api import ID
    from ticdc_lab.ddl_service.serving import Listening
    from ticdc_lab.ddl_service.serving import serve as run
    from ticdc_lab.machines.leases import Terms

    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise click.BadParameter(f"{listen!r}; expected HOST:PORT", param_hint="--listen")
    if not ID.fullmatch(node_id):
        raise click.BadParameter(f"{node_id!r}; expected letters, digits, '_', '.', '-'", param_hint="--node-id")
    versions = versions_of(version, oldest)
    logs.begin(log_format, node_id)
    listening = Listening(host.strip("[]"), int(port), secret_of(secret_file), tls_cert, tls_key, tls_client_ca)
    ttl_us = int(ttl * 1e6)
    duties = Duties(versions, Terms(ttl_us, ttl_us // 5))
    ended_well = run(
        node_id, where.open, listening, duties, ready=lambda at: logs.LOG.info("%s listens on %s:%s", node_id, host, at)
    )
    sys.exit(CLEAN if ended_well else FAILED)


@ddl_service.command()
@store_options
@version_options
@click.option("--debug", is_flag=True, help="Show the whole trace of an error.")
@guarded
def audit(where: Where, version: str, oldest: str) -> None:
    """Check the whole history of a store.

    For example: a cluster never has two owners, and a job advances one step at a time.

    Exit 0 clean, 1 findings, 2 could not run.
    """
    from ticdc_lab.ddl_service import auditing
    from ticdc_lab.ddl_service.auditing import violations
    from ticdc_lab.ddl_service.sqlite_file import begun

    stores: list[str] = []
    if where.etcd is None:
        written, stores = list(auditing.of_folder(where.folder)), begun(where.folder)
    else:
        written = auditing.of_etcd(where.etcd)
    found = violations(written, versions_of(version, oldest), stores=stores)
    for line in found:
        click.echo(line)
    click.echo(f"{count(len(written), 'change')}, {count(len(found), 'violation')}")
    sys.exit(FINDINGS if found else CLEAN)


@ddl_service.command("go-on")
@store_options
@click.option(
    "--from",
    "source",
    type=click.Choice(["mirror", "store"]),
    required=True,
    help="mirror: register again what workers know and etcd no longer has. store: accept what etcd has now.",
)
@click.option("--debug", is_flag=True, help="Show the whole trace of an error.")
@guarded
def go_on(where: Where, source: str) -> None:
    """Resume workers after etcd lost data.

    They stop serving when etcd comes back empty or older, or is another one; this decides for all of them. Jobs and
    schemas of clusters are not restored.
    """
    from ticdc_lab.ddl_service.etcd_witness import gone_on

    if where.etcd is None:
        raise click.UsageError("Give --etcd. With --store, put the store back and start the workers again.")
    decided = gone_on(where.etcd, source)
    for lost in decided:
        click.echo(f"continues from the {source}: {lost.words}")
    if not decided:
        click.echo("no worker waits for a decision")
