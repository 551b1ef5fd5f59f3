"""Keep secrets out of all that is printed: errors, traces and logs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

HIDDEN = "***"

_SECRET_KEY = re.compile(
    r"passw|passphrase|jaas|secret|token|credential|keystore\.key|private|(?:account|api|access)[._-]?key"
    r"|user\.info",
    re.IGNORECASE,
)
_ASSIGNED = re.compile(
    r"""(?P<name>[\w.]*(?:passw(?:or)?d|passphrase|secret|token)[\w.]*["']?\s*[=:]\s*)"""
    r"""(?P<value>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[^\s;,"'}]+)""",
    re.IGNORECASE,
)


def is_secret(name: str) -> bool:
    """Whether the value of an option of this name must not be shown."""
    return bool(_SECRET_KEY.search(name))


def secrets(options: Mapping[str, str]) -> frozenset[str]:
    """Texts that must not be shown: values of secret options, the lines of a key, the passwords inside a JAAS line."""
    values = [value for key, value in options.items() if is_secret(key)]
    lines = [line for value in values for line in value.splitlines() if len(line) > 7]
    inside = [m["value"].strip("\"'") for value in values for m in _ASSIGNED.finditer(value)]
    return frozenset(text for text in (*values, *lines, *inside) if text.strip())


def redacted(text: str, options: Mapping[str, str]) -> str:
    """``text`` with every secret of ``options``, and all that is written as ``password=..``, replaced by ``***``."""
    forms = {form for secret in secrets(options) for form in (secret, repr(secret)[1:-1], json.dumps(secret)[1:-1])}
    for form in sorted(forms, key=len, reverse=True):
        text = text.replace(form, HIDDEN)
    return _ASSIGNED.sub(lambda m: m["name"] + HIDDEN, text)


def shown_source(source: str) -> str:
    """A source as it may be shown: a path as it is, a URL without what may be secret in it.

    Examples
    --------
    >>> shown_source("logs/a@b.jsonl"), shown_source("s3a://me:hidden@bucket/log")
    ('logs/a@b.jsonl', 's3a://bucket/log')
    """
    return without_secrets(source) if "://" in source else source


def without_secrets(url: str) -> str:
    """A URL without what may be secret in it: the name and password, the query.

    Examples
    --------
    >>> without_secrets("mysql://root:hidden@127.0.0.1:3306/shop")
    'mysql://127.0.0.1:3306/shop'
    """
    scheme, mark, rest = url.partition("://") if "://" in url else ("", "", url)
    before, _, after = rest.rpartition("@")
    place = "..." if re.search("[?#]", before) else re.split("[?#]", after)[0]
    return f"{scheme}{mark}{place}"
