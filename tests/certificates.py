"""Certificates for a broker with TLS, by openssl in a moment: a CA and another one, a good and an expired one."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

_EC = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


@dataclass(frozen=True, slots=True)
class Certificates:
    """PEM files.

    Attributes
    ----------
    ca, other_ca
        The one that signed both certificates, and one that signed nothing.
    good, expired
        A private key and its certificate, of 127.0.0.1 alone.
    """

    ca: Path
    other_ca: Path
    good: Path
    expired: Path


def certificates(folder: Path) -> Certificates:
    """Make them."""
    folder.mkdir(parents=True)
    ca, other = (_authority(folder, name) for name in ("ca", "other"))
    return Certificates(ca, other, _signed(folder, "good", days=2), _signed(folder, "expired", days=-1))


def _authority(folder: Path, name: str) -> Path:
    out = folder / f"{name}.pem"
    _openssl("req", "-x509", *_EC, "-keyout", folder / f"{name}.key", "-out", out, "-days", "2", "-subj", f"/CN={name}")
    return out


def _signed(folder: Path, name: str, *, days: int) -> Path:
    request, signed, key = (folder / f"{name}.{kind}" for kind in ("csr", "crt", "key"))
    _openssl("req", "-new", *_EC, "-keyout", key, "-out", request, "-subj", "/CN=broker")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    by = ("-CA", folder / "ca.pem", "-CAkey", folder / "ca.key", "-extfile", folder / "names")
    _openssl("x509", "-req", "-in", request, *by, "-out", signed, "-days", str(days))
    both = folder / f"{name}.pem"
    both.write_text(key.read_text() + signed.read_text())
    return both


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)
