"""``earthsciio inspect``: the variables of a file as the library sees them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from earthsciio.calendars import calendar
from earthsciio.declare import load_case
from earthsciio.decode.values import ValueOptions, value_spec
from earthsciio.errors import DeclarationError, EarthSciIOError, FileFormatError, MissingFile
from earthsciio.fields import Array
from earthsciio.formats import ArrayInfo, Reader, create_reader, files
from earthsciio.provider import Provider
from earthsciio.registry import Registry
from earthsciio.series import FileSeries
from earthsciio.shape import nearest
from earthsciio.source import DataSource
from earthsciio.timeaxis import decode_axis
from earthsciio.yamltext import plain_value

from .output import print_table

__all__ = ["configure", "run"]

_FORMATS = {".zarr": "zarr", ".csv": "csv"}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("file", metavar="FILE", help="a data file, or a YAML file of sources")
    parser.add_argument("source", nargs="*", help="names of sources of the YAML file; all by default")
    parser.add_argument("--format", help="the file's format; by its name if not given")
    parser.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help="an option of the format's reader"
    )
    parser.add_argument("--attributes", action="store_true", help="list the attributes of every variable too")


def run(args: argparse.Namespace) -> int:
    """Show the file, or the first file of each source."""
    if Path(args.file).suffix.lower() in (".yaml", ".yml"):
        _show_sources(args.file, args.source, attributes=args.attributes)
        return 0
    format_name = args.format or _FORMATS.get(Path(args.file).suffix.lower(), "netcdf")
    reader = create_reader(format_name, dict(_option(text) for text in args.option))
    _show(reader, args.file, (), attributes=args.attributes)
    return 0


def _option(text: str) -> tuple[str, object]:
    name, equals, value = text.partition("=")
    if not equals:
        raise DeclarationError(f"--option takes NAME=VALUE, not {text!r}")
    return name, plain_value(value)


def _show_sources(path: str, names: Sequence[str], *, attributes: bool) -> None:
    case = load_case(path)
    cache = case.open_cache()
    for position, name in enumerate(names or case.sources):
        if name not in case.sources:
            raise DeclarationError(
                f"there is no source {name!r}", file=path, hint=nearest(name, case.sources) or None
            )
        source = case.sources[name]
        series = FileSeries.of(source, cache)
        _, found = series.locate(None if source.temporal is None else source.temporal.cadence.start)
        print(f"{chr(10) if position else ''}source {name} ({source.format})")
        _show(series.reader, found, source.variables, attributes=attributes)


def _show(reader: Reader, path: str, delivered: Sequence[str], *, attributes: bool) -> None:
    arrays = _arrays(reader, path)
    sizes = {dim: size for info in arrays for dim, size in zip(info.dims, info.shape, strict=True)}
    print(f"file: {path}")
    print(f"dimensions: {', '.join(f'{dim} {size}' for dim, size in sizes.items()) or 'none'}")
    for info in arrays:
        span = _span(reader, path, info)
        if span:
            print(f"time: {info.name}: {span}")
    rows = [
        [
            ("* " if info.name in delivered else "") + info.name,
            ", ".join(f"{dim} {size}" for dim, size in zip(info.dims, info.shape, strict=True)) or "scalar",
            ", ".join(map(str, info.chunks)),
            info.dtype.str,
            _comes_out(reader, info),
            str(info.attrs.get("units", "")),
            str(info.attrs.get("long_name", info.attrs.get("standard_name", ""))),
        ]
        for info in arrays
    ]
    print_table(["variable", "dimensions", "chunk", "stored", "comes out as", "units", "name"], rows)
    for info in arrays if attributes else ():
        print(f"\n{info.name}")
        for name, value in info.attrs.items():
            print(f"  {name} = {np.array2string(value) if isinstance(value, np.ndarray) else repr(value)}")


def _arrays(reader: Reader, path: str) -> list[ArrayInfo]:
    try:
        with files.lease(reader, path) as lease:
            return list(lease.file.arrays.values())
    except EarthSciIOError:
        raise
    except FileNotFoundError as error:
        raise MissingFile("there is no such file", file=path) from error
    except OSError as error:
        raise FileFormatError(f"can't be read: {error}", file=path) from error


def _comes_out(reader: Reader, info: ArrayInfo) -> str:
    if info.unsupported:
        return f"not delivered: {info.unsupported}"
    options = ValueOptions(reader.precision, reader.mask_valid_range, reader.default_fill)
    return str(value_spec(info.name, info.dtype, info.attrs, options).out)


def _span(reader: Reader, path: str, info: ArrayInfo) -> str | None:
    """Say which records a time coordinate dates; None if the variable is none."""
    units, named = info.attrs.get("units"), info.attrs.get("calendar")
    if len(info.dims) != 1 or not isinstance(units, str) or " since " not in units.lower():
        return None
    try:
        own = calendar(named if isinstance(named, str) else None)
        axis = decode_axis(
            _values(reader, path, info.name), units, own.name, own,
            file=path, sort=reader.sort_time, months_opt_in=reader.whole_months,
        )  # fmt: skip
    except EarthSciIOError as error:
        return str(error)
    if axis.span is None:
        return "no records"
    first, last = map(own.text, axis.span)
    return f"{len(axis)} records from {first} to {last} ({own.name})"


def _values(reader: Reader, path: str, variable: str) -> Array:
    """Read one variable whole."""
    formats: Registry[Reader] = Registry("format")
    formats.register("this", lambda: replace(reader, select=None))
    return (
        Provider(DataSource("inspect", "this", path, (variable,)), formats=formats)
        .materialize()[variable]
        .data
    )
