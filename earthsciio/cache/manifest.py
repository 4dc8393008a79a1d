"""What the cache knows about a blob: one small JSON file beside it, shared with other languages.

The fields are those of format v1. Absent values are null, fields this version does not know are kept
through a rewrite, and a credential never gets in: URLs are redacted on the way (:mod:`.redact`), realms are
names.
"""

from __future__ import annotations

import builtins
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final

from .keys import is_key
from .redact import redact
from .times import parse_time

__all__ = ["MANIFEST_SCHEMA", "Manifest", "as_validator"]

MANIFEST_SCHEMA: Final = "earthsciio/manifest/v1"
_TEXT_FIELDS: Final = (
    "url",
    "etag",
    "last_modified",
    "sha256_content",
    "fetched_at",
    "source_loader",
    "auth_realm",
)
#: What HTTP can carry, as Latin-1, and will: not every server takes a line longer than 8 KiB.
_VALIDATOR: Final = re.compile(r"[\x21-\x7e](?:[\t\x20-\x7e\x80-\xff]{0,4094}[\x21-\x7e])?")
#: How deep the values of unknown fields may be nested: Python reads more than it can write.
_DEPTH: Final = 32


def as_validator(text: str | None) -> str | None:
    """Return an etag or modification time if it can be sent back to its server, else None."""
    return text if text is not None and _VALIDATOR.fullmatch(text) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The record of one blob.

    Parameters
    ----------
    url : str
        The canonical URL, whichever mirror served it; credentials inside it are replaced on construction.
    etag, last_modified : str, optional
        The server's validators, verbatim.
    sha256_content : str, optional
        SHA-256 of the blob, 64 lowercase hexadecimal digits.
    bytes : int, optional
        Size of the blob.
    fetched_at : str, optional
        When the source last gave or confirmed these bytes; RFC 3339, UTC.
    source_loader : str, optional
        Name of the data source that asked.
    auth_realm : str, optional
        Name of the realm whose credentials were used; never the credentials.
    extra : mapping, optional
        Fields of the JSON file that this version does not know; written back as they were.
    """

    url: str
    etag: str | None = None
    last_modified: str | None = None
    sha256_content: str | None = None
    bytes: int | None = None
    fetched_at: str | None = None
    source_loader: str | None = None
    auth_realm: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "url", redact(self.url))
        object.__setattr__(self, "extra", MappingProxyType(dict(self.extra)))
        for name in _TEXT_FIELDS:
            value = getattr(self, name)
            if not (isinstance(value, str) or (value is None and name != "url")):
                raise TypeError(f"manifest field {name} is text, not {_shown(value)}")
        for name in ("etag", "last_modified"):
            if (value := getattr(self, name)) and as_validator(value) is None:
                raise ValueError(f"manifest field {name} can't be sent to a server: {_shown(value)}")
        if self.sha256_content is not None and not is_key(self.sha256_content):
            raise ValueError(
                f"manifest field sha256_content is 64 lowercase hexadecimal digits, "
                f"not {_shown(self.sha256_content)}"
            )
        if self.bytes is not None and not (type(self.bytes) is int and 0 <= self.bytes < 1 << 63):
            raise ValueError(f"manifest field bytes is a size, not {_shown(self.bytes)}")

    def __reduce__(self) -> tuple[Any, ...]:
        return Manifest.from_dict, (self.to_dict(),)  # a mapping proxy does not pickle

    @property
    def schema(self) -> str:
        """The schema the JSON file names."""
        return MANIFEST_SCHEMA

    @property
    def fetched(self) -> datetime | None:
        """``fetched_at`` as an aware UTC time; None where it is absent or no RFC 3339 time."""
        return None if self.fetched_at is None else parse_time(self.fetched_at)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object: the documented fields in their order, then the unknown ones."""
        known: dict[str, Any] = {
            "schema": MANIFEST_SCHEMA,
            "url": self.url,
            "etag": self.etag,
            "last_modified": self.last_modified,
            "sha256_content": self.sha256_content,
            "bytes": self.bytes,
            "fetched_at": self.fetched_at,
            "source_loader": self.source_loader,
            "auth_realm": self.auth_realm,
        }
        return known | {name: value for name, value in self.extra.items() if name not in known}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Manifest:
        """Build a manifest from a JSON object.

        Raises
        ------
        ValueError, TypeError
            If it is of another schema, a field has the wrong type, or what it holds can't be written back.
        """
        _check_writable(document, _DEPTH)
        rest = dict(document)
        if (schema := rest.pop("schema", None)) != MANIFEST_SCHEMA:
            raise ValueError(f"manifest schema {_shown(schema)} is not {MANIFEST_SCHEMA!r}")
        known = {name: rest.pop(name, None) for name in (*_TEXT_FIELDS, "bytes")}
        return cls(**known, extra=rest)

    def to_json(self) -> str:
        """Return the text of the JSON file."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str | builtins.bytes) -> Manifest:
        """Read the text of the JSON file.

        Raises
        ------
        ValueError, TypeError
            If it is not JSON, or not a manifest of this schema.
        """
        try:
            document = json.loads(text)
        except RecursionError:
            raise ValueError("JSON nested too deeply") from None
        if not isinstance(document, dict):
            raise TypeError("a manifest is a JSON object")
        return cls.from_dict(document)


def _check_writable(value: object, depth: int) -> None:
    """Raise ValueError for what JSON in UTF-8 can't say, or Python not write."""
    if isinstance(value, str):
        value.encode()  # half of a surrogate pair is a UnicodeError, and so a ValueError
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a number that is none")
    elif isinstance(value, (Mapping, list)):
        if not depth:
            raise ValueError("JSON nested too deeply")
        parts = [*value, *value.values()] if isinstance(value, Mapping) else value
        for part in parts:
            _check_writable(part, depth - 1)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
