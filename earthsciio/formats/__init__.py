"""What a file looks like: every format is a set of chunked arrays behind one seam.

``format_registry`` maps format names to readers; a third party registers its own there.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from earthsciio.errors import DeclarationError, UnknownReaderOption
from earthsciio.registry import Registry

from .base import ArrayInfo, OpenFile, Reader
from .csv import CSVReader
from .netcdf import NetCDFReader
from .zarr import ZarrReader

__all__ = [
    "ArrayInfo",
    "CSVReader",
    "NetCDFReader",
    "OpenFile",
    "Reader",
    "ZarrReader",
    "create_reader",
    "format_registry",
    "reader_option_names",
    "supports_selection",
]

format_registry: Registry[Reader] = Registry("format")
format_registry.register("csv", CSVReader)
format_registry.register("netcdf", NetCDFReader)
format_registry.register("zarr", ZarrReader)


def reader_option_names(reader: type[Reader] | Reader) -> frozenset[str]:
    """Give the names of the options a reader takes."""
    return frozenset(field.name for field in dataclasses.fields(reader) if field.init)


def supports_selection(reader: type[Reader] | Reader) -> bool:
    """Whether a reader reads Windows without reading the rest."""
    return reader.supports_selection


def create_reader(
    format_name: str, options: dict[str, Any], registry: Registry[Reader] | None = None
) -> Reader:
    """Build the reader of a format.

    Raises
    ------
    BackendNotRegistered
        If no such format is registered.
    UnknownReaderOption
        If the format does not have one of the options.
    DeclarationError
        If an option has a value its reader does not take.
    """
    import difflib

    factory = (registry or format_registry).get(format_name)
    if isinstance(factory, type) and issubclass(factory, Reader):
        known = reader_option_names(factory)
        for name in options:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                guess = f"Did you mean {near[0]!r}? " if near else ""
                raise UnknownReaderOption(
                    f"format {format_name!r} has no option {name!r}", hint=f"{guess}It has {sorted(known)}"
                )
    reader = factory(**options)
    try:
        hash(reader)
    except TypeError as error:
        raise DeclarationError(
            f"an option of format {format_name!r} can't be hashed: {error}",
            hint="Readers are compared by their options, so these are frozen values: tuples, not lists",
        ) from error
    return reader
