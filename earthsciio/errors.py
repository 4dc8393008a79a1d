"""Every error and warning the library raises, in one tree.

A caller who knows nothing of this library catches the builtin each class also is (``IndexError`` for a
time past the end, ``OSError`` for a file that can't be read); a caller who does catches
:class:`EarthSciIOError`. Errors carry what they are about as attributes (``file``, ``variable``,
``epoch``, ``chunk``, ``hint`` and whatever else the raiser named), say it in their text, and survive
pickling with all of it, because they cross process and rank boundaries.
"""

from __future__ import annotations

from typing import Any, Self

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
    "SourceNotDeclared",
    "SourceNotFound",
    "SourceUnclear",
    "TimeAxisError",
    "TimeBeforeStart",
    "TimePastEnd",
    "TooLarge",
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
        What the reader can do about it; appended to the text. Most classes have a general one.
    **context
        Anything else worth keeping; each becomes an attribute and part of the text.
    """

    file: str | None
    variable: str | None
    epoch: object | None
    chunk: tuple[int, ...] | None
    #: What to do in general; the raiser's own hint replaces it.
    hint: str | None = None

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
        if hint is not None:
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

    hint = "Register it first, or correct the name"


class Unsupported(EarthSciIOError, NotImplementedError):
    """Something a file holds or a caller asks for that the library does not do (yet)."""

    hint = "Do without it, or ask for it"


class UnknownReaderOption(EarthSciIOError, ValueError):
    """A reader option the format does not have; refused at construction."""

    hint = "Correct the name in reader_kwargs"


class DeclarationError(EarthSciIOError, ValueError):
    """Source, cadence, group or case that contradicts itself; the raiser may know what to write instead."""


class SourceNotDeclared(EarthSciIOError, KeyError):
    """A name that a declaration file gives to none of its sources."""

    hint = "Declare it, or correct the name"


class FileFormatError(EarthSciIOError, OSError):
    """A file that is not what its format says: truncated, empty, or something else entirely."""

    hint = "Fetch the file again, or look at what its source delivers"


class DecodeError(EarthSciIOError, OSError):
    """Stored bytes that could not be turned into values: corrupt, short, or failing their checksum."""

    hint = "The file is damaged or has changed; fetch it again"


class TimeAxisError(EarthSciIOError, ValueError):
    """A time coordinate that can't be decoded, is out of order, or has an unknown calendar."""

    hint = "Correct the file's time coordinate, or declare the source to match it"


class NotATimeAxis(TimeAxisError):
    """A coordinate whose units have no reference date: it numbers its records but does not date them."""


class TimeBeforeStart(EarthSciIOError, ValueError):
    """A time before the source's ``start``."""

    hint = "Ask for a time from start on, or declare outside='hold' or 'cycle'"


class TimePastEnd(EarthSciIOError, IndexError):
    """A time at or after the source's ``end``."""

    hint = "Ask for a time before end, or declare outside='hold' or 'cycle'"


class RecordNotFound(EarthSciIOError, IndexError):
    """A file that does not hold the record its declaration promises."""

    hint = "Check start, frequency and file_period against the file's times"


class VariableNotFound(EarthSciIOError, KeyError):
    """A variable the source declares, or the caller asks for, that the file does not have."""

    hint = "Correct the name; on-disk names count"


class SelectionError(EarthSciIOError, ValueError):
    """A selection whose form is wrong, or that names what the file does not have."""

    hint = "Give each dimension 'all', (start, stop[, step]) or a list of indices, by the names the file has"


class SelectionRangeError(EarthSciIOError, IndexError):
    """A selector outside its dimension."""

    hint = "Indices count from 0, are never negative, and end before the dimension's length"


class TooLarge(EarthSciIOError, MemoryError):
    """A request that takes more memory than there is, or more chunks than can be planned at once."""

    hint = "Ask for less at once: a Window, or fewer variables. If it should be smaller, the file is damaged"

    def __new__(cls, *args: object, **_context: object) -> Self:
        """Make one; MemoryError's own would refuse to, as its memory is not laid out for more."""
        return Exception.__new__(cls, *args)


class FetchError(EarthSciIOError, OSError):
    """A file that could not be brought into the cache."""

    hint = "Check the URL, the network and the cache"


class MissingFile(FetchError, FileNotFoundError):
    """A file of the source that is not there."""

    hint = "Check the path, or whether the file has been produced yet"


class TransportError(FetchError):
    """The transport failed: connection, status, length."""

    hint = "Try again, check the URL, or declare mirrors"


class SourceNotFound(TransportError, FileNotFoundError):
    """The source says it has no such file (a 404, a missing local file): gone, or not there yet."""

    hint = "Check the URL, or whether the file has been produced yet"


class SourceUnclear(SourceNotFound):
    """Not found, but not known to be absent: half written, withdrawn, or not every mirror could say."""

    hint = "Try again when it is complete, or when every place it could be at answers"


class CacheStoreError(FetchError):
    """The cache itself could not be read or written: a full disk, permissions, a lock nobody gives back."""

    hint = "Check the cache folder: space, permissions, and who else uses it"


class AuthError(FetchError, PermissionError):
    """Credentials missing or refused."""

    hint = "Check the credentials of the source's auth_realm"


class IntegrityError(FetchError):
    """Bytes that do not match their declared length or checksum."""

    hint = "Fetch it again; if it stays, the source or the declared checksum is wrong"


class OfflineError(FetchError):
    """Something that needs the network was asked for in offline mode."""

    hint = "Warm the cache first, or don't ask for offline mode (the variable EARTHSCI_OFFLINE does, too)"


class CacheMiss(OfflineError, FileNotFoundError):
    """Offline, and the blob is not in the cache.

    Parameters
    ----------
    resolved_url : str
        The URL that was asked for.
    key : str
        Its cache key.
    damage : str, optional
        What the cache has of it, but can't use.
    """

    resolved_url: str
    key: str

    def __init__(self, resolved_url: str, key: str, *, damage: str | None = None) -> None:
        super().__init__(
            "not in the cache, and offline",
            resolved_url=resolved_url,
            key=key,
            damage=damage,
            hint="Warm the cache while the network is reachable (earthsciio warm)",
        )


class OrderError(EarthSciIOError, ValueError):
    """``take`` of an epoch that is not the next one of the order."""

    hint = "Take the epochs of the order in its sequence"


class GroupStateError(EarthSciIOError, RuntimeError):
    """A group used in a state, or from a thread, that does not allow the call."""

    hint = "Start an order, and use the group from the thread that did"


class Cancelled(EarthSciIOError, RuntimeError):
    """The work was abandoned: cancelled order, closed group, or interpreter exit."""

    hint = "Start again to go on"
