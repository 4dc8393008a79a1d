"""Keeps credentials out of whatever people or files may see: URLs, messages, log records.

A URL can carry a secret in three places: ``user:password@`` before the host, a query parameter (signed
URLs, API keys), and a fragment made like a query. Each is replaced by ``REDACTED``; all else stays, so that
a person still recognizes the URL.
"""

from __future__ import annotations

import re

__all__ = ["redact"]

_REPLACEMENT = "REDACTED"
_USERINFO = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)[^/?#\s]*@")
# Signed URLs of S3, GCS and Azure, and the names under which data portals take keys and tokens.
_TELLING_NAME = (
    r"[^=&?#\s]*(?:token|secret|passw|pwd|signature|credential|api[-_.]?key|access[-_.]?key|accesskeyid|"
    r"accessid|auth|session|subscription[-_.]?key)[^=&?#\s]*"
    r"|sig|key|code|jwt|appid|user(?:name)?|login"
)
_PARAMETER = re.compile(rf"(?P<name>[?&#;](?:{_TELLING_NAME})=)[^&#;\s'\")>\]]*", re.IGNORECASE)


def redact(text: str) -> str:
    """Return ``text`` with the credentials of every URL in it replaced.

    Examples
    --------
    >>> redact("GET https://me:pw@example.org/a.nc?day=3&token=abc failed")
    'GET https://REDACTED@example.org/a.nc?day=3&token=REDACTED failed'
    """
    if "@" in text:
        text = _USERINFO.sub(rf"\g<scheme>{_REPLACEMENT}@", text)
    if "=" in text:
        text = _PARAMETER.sub(rf"\g<name>{_REPLACEMENT}", text)
    return text
