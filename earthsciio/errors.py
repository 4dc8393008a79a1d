"""Every error and warning the library raises, in one tree.

A caller who knows nothing of this library catches the builtin each class also is (``IndexError`` for a
time past the end, ``OSError`` for a file that can't be read); a caller who does catches
:class:`EarthSciIOError`. Errors carry what they are about as attributes (``file``, ``variable``,
``epoch``, ``chunk``, ``hint`` and whatever else the raiser named), say it in their text, and survive
pickling with all of it, because they cross process and rank boundaries.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "AuthError",
    "BackendNotRegistered",
    "CacheMiss",
    "CacheStoreError",
    "Cancelled",
    "DeclarationError",
    "DecodeError",
    "EarthSciIOError",
    "EarthSciIOWarning",
    "FetchError",
    "FileFormatError",
    "GroupStateError",
    "IntegrityError",
    "MissingFile",
    "NotATimeAxis",
    "OfflineError",
    "OrderError",
    "RecordNotFound",
    "SelectionError",
    "SelectionRangeError",
    "SourceNotFound",
    "TimeAxisError",
    "TimeBeforeStart",
    "TimePastEnd",
    "TransportError",
    "UnknownReaderOption",
    "Unsupported",
    "VariableNotFound",
]


class EarthSciIOWarning(UserWarning):
    """A declaration or file is doubtful, and was read by the rule the text names."""


def _rebuild(cls: type[EarthSciIOError], args: tuple[Any, ...], state: dict[str, Any]) -> EarthSciIOError:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class EarthSciIOError(Exception):
    """Base of every error of this library.

    Parameters
    ----------
    message : str
        What went wrong, in one sentence.
    file, variable, epoch, chunk : optional
        What it went wrong with: a path or URL, an on-disk variable name, an epoch or time, a chunk index.
    hint : str, optional
        What the reader can do about it; appended to the text.
    **context
        Anything else worth keeping; each becomes an attribute and part of the text.
    """

    file: str | None
    variable: str | None
    epoch: object | None
    chunk: tuple[int, ...] | None
    hint: str | None

    def __init__(
        self,
        message: str,
        /,
        *,
        file: object | None = None,
        variable: str | None = None,
        epoch: object | None = None,
        chunk: tuple[int, ...] | None = None,
        hint: str | None = None,
        **context: Any,
    ) -> None:
        super().__init__(message)
        self.file = None if file is None else str(file)
        self.variable = variable
        self.epoch = epoch
        self.chunk = chunk
        self.hint = hint
        self.context = context
        self.__dict__.update(context)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)

    def __str__(self) -> str:
        # put together late, so that a layer above can still say which file or chunk it was
        subject = {name: getattr(self, name) for name in ("file", "variable", "epoch", "chunk")}
        about = ", ".join(
            f"{name}={value}" for name, value in {**subject, **self.context}.items() if value is not None
        )
        message = str(self.args[0]) if self.args else ""
        text = f"{message} [{about}]" if about else message
        return f"{text}. {self.hint}" if self.hint else text


class BackendNotRegistered(EarthSciIOError, LookupError):
    """A format, transport or store name that nobody registered."""


class Unsupported(EarthSciIOError, NotImplementedError):
    """Something a file holds or a caller asks for that the library does not do (yet)."""


class UnknownReaderOption(EarthSciIOError, ValueError):
    """A reader option the format does not have; refused at construction."""


class DeclarationError(EarthSciIOError, ValueError):
    """A source, cadence, group or case that contradicts itself."""


class FileFormatError(EarthSciIOError, OSError):
    """A file that is not what its format says: truncated, empty, or something else entirely."""


class DecodeError(EarthSciIOError, OSError):
    """Stored bytes that could not be turned into values: corrupt, short, or failing their checksum."""


class TimeAxisError(EarthSciIOError, ValueError):
    """A time coordinate that can't be decoded, is out of order, or has an unknown calendar."""


class NotATimeAxis(TimeAxisError):
    """A coordinate whose units have no reference date: it numbers its records but does not date them."""


class TimeBeforeStart(EarthSciIOError, ValueError):
    """A time before the source's ``start``."""


class TimePastEnd(EarthSciIOError, IndexError):
    """A time at or after the source's ``end``."""


class RecordNotFound(EarthSciIOError, IndexError):
    """A file that does not hold the record its declaration promises."""


class VariableNotFound(EarthSciIOError, KeyError):
    """A variable the source declares, or the caller asks for, that the file does not have."""


class SelectionError(EarthSciIOError, ValueError):
    """A selection whose form is wrong, or that names what the file does not have."""


class SelectionRangeError(EarthSciIOError, IndexError):
    """A selector outside its dimension."""


class FetchError(EarthSciIOError, OSError):
    """A file that could not be brought into the cache."""


class MissingFile(FetchError, FileNotFoundError):
    """A file of the source that is not there."""


class TransportError(FetchError):
    """The transport failed: connection, status, length."""


class SourceNotFound(TransportError, FileNotFoundError):
    """The source says it has no such file (a 404, a missing local file): gone, or not there yet."""


class CacheStoreError(FetchError):
    """The cache itself could not be read or written: a full disk, permissions, a lock nobody gives back."""


class AuthError(FetchError, PermissionError):
    """Credentials missing or refused."""


class IntegrityError(FetchError):
    """Bytes that do not match their declared length or checksum."""


class OfflineError(FetchError):
    """Something that needs the network was asked for in offline mode."""


class CacheMiss(OfflineError, FileNotFoundError):
    """Offline, and the blob is not in the cache.

    Parameters
    ----------
    resolved_url : str
        The URL that was asked for.
    key : str
        Its cache key.
    """

    resolved_url: str
    key: str

    def __init__(self, resolved_url: str, key: str) -> None:
        super().__init__(
            "not in the cache, and offline",
            resolved_url=resolved_url,
            key=key,
            hint="Warm the cache while the network is reachable (earthsciio warm), or unset EARTHSCI_OFFLINE",
        )


class OrderError(EarthSciIOError, ValueError):
    """``take`` of an epoch that is not the next one of the order."""


class GroupStateError(EarthSciIOError, RuntimeError):
    """A group used in a state, or from a thread, that does not allow the call."""


class Cancelled(EarthSciIOError, RuntimeError):
    """The work was abandoned: cancelled order, closed group, or interpreter exit."""
