"""The NetCDF reader: classic files, NetCDF-4 and plain HDF5 under one name, told apart by their bytes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from earthsciio.errors import DeclarationError, FileFormatError

from .base import OpenFile, Reader

__all__ = ["NetCDFReader"]

_HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"


@dataclass(frozen=True, kw_only=True)
class NetCDFReader(Reader):
    """Reads NetCDF-3, NetCDF-4 and HDF5 files.

    Parameters
    ----------
    group : str, optional
        Path of the group whose variables are read; root by default.
    **options
        Those of :class:`~earthsciio.formats.base.Reader`.
    """

    group: str | None = None

    default_fill: ClassVar[bool] = True

    def open(self, path: str) -> OpenFile:
        """Open a file; see :meth:`Reader.open <earthsciio.formats.base.Reader.open>`."""
        match _kind(path):
            case "classic":
                if self.group not in (None, "/", ""):
                    raise DeclarationError(f"a classic file has no group {self.group!r}", file=path)
                from .netcdf3 import ClassicFile

                return ClassicFile(path)
            case _:
                from .hdf5 import Hdf5File

                return Hdf5File(path, self.group)


def _kind(path: str) -> str:
    with Path(path).open("rb") as stream:
        size = stream.seek(0, 2)
        stream.seek(0)
        head = stream.read(64)
        if size == 0:
            raise FileFormatError("the file is empty", file=path, hint="Fetch it again")
        if head[:3] == b"CDF" and head[3:4] in (b"\x01", b"\x02", b"\x05"):
            return "classic"
        # the signature may follow a user block of 512 bytes, or any doubling of that
        offset = 0
        while offset + len(_HDF5_SIGNATURE) <= size:
            stream.seek(offset)
            if stream.read(len(_HDF5_SIGNATURE)) == _HDF5_SIGNATURE:
                return "hdf5"
            offset = max(512, 2 * offset)
    if head.removeprefix(b"\xef\xbb\xbf").lstrip().lower().startswith((b"<!doctype", b"<html", b"<?xml")):
        raise FileFormatError(
            "neither NetCDF nor HDF5: it is a web page",
            file=path,
            hint="A server that wants a login may answer so: look at the URL and at its credentials. A copy "
            "in the cache is fetched again once this file is deleted",
        )
    raise FileFormatError(
        f"neither NetCDF nor HDF5: it starts with {head[:16]!r}",
        file=path,
        hint="Look at what the URL delivers",
    )
