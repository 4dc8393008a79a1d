"""The CSV reader: points in a table, one column a variable.

The first row names the columns. A column is float64 if every cell that is not empty is a number (empty is
NaN), text otherwise; which of the two is decided by the whole file, never by a Window. All columns lie along
one dimension. A time column turns into a CF time coordinate, so that a table can be a DISCRETE source with a
row per record.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from earthsciio.calendars import SECOND
from earthsciio.calendars import calendar as get_calendar
from earthsciio.errors import DeclarationError, DecodeError, EarthSciIOError, FileFormatError
from earthsciio.fields import Array
from earthsciio.forks import new_lock
from earthsciio.source import parse_time

from .base import ArrayInfo, OpenFile, Reader, virtual_chunks

__all__ = ["CSVReader", "TableFile"]


@dataclass(frozen=True, kw_only=True)
class CSVReader(Reader):
    """Reads tables of points.

    Parameters
    ----------
    delimiter : str
        One character between cells.
    comment : str, optional
        Lines that begin with it are skipped.
    encoding : str
        Of the file; a byte order mark is skipped.
    dim : str, optional
        Name of the one dimension; by default that of the time column, else ``"point"``.
    coordinates : sequence of str
        Columns that say where a point is (``("lat", "lon")``); delivered as coordinates of the others.
    numeric, text : sequence of str
        Columns that are numbers (any other cell is an error) and text (also where cells look like numbers).
    missing : sequence of str
        Cells that mean the same as an empty one (``("NA", "-9999")``), compared as text.
    time_column : str, optional
        The column that dates the rows.
    time_units : str, optional
        Units of a numeric time column (``"hours since 2019-01-01"``). Without them its cells are ISO times
        in UTC, delivered as seconds since 1970-01-01.
    calendar : str
        Calendar of the time column.
    **options
        Those of :class:`~earthsciio.formats.base.Reader`.
    """

    delimiter: str = ","
    comment: str | None = None
    encoding: str = "utf-8"
    dim: str | None = None
    coordinates: tuple[str, ...] = ()
    numeric: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    time_column: str | None = None
    time_units: str | None = None
    calendar: str = "standard"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.delimiter, str) or len(self.delimiter) != 1:
            raise DeclarationError(f"delimiter is one character, not {self.delimiter!r}")
        for name in ("coordinates", "numeric", "text", "missing"):
            value = getattr(self, name)
            if isinstance(value, str) or not all(isinstance(item, str) for item in value):
                raise DeclarationError(f"{name} is a list of strings, not {value!r}")
            object.__setattr__(self, name, tuple(value))
        if both := sorted(set(self.numeric) & set(self.text)):
            raise DeclarationError(f"columns {both} are declared both numeric and text")
        if self.time_units is not None and self.time_column is None:
            raise DeclarationError("time_units needs a time_column")
        get_calendar(self.calendar)

    def open(self, path: str) -> OpenFile:
        """Open a table; see :meth:`Reader.open <earthsciio.formats.base.Reader.open>`."""
        return TableFile(path, self)


class TableFile:
    """An open table.

    Parameters
    ----------
    path : str
        The file.
    reader : CSVReader
        How to read it.

    Raises
    ------
    FileFormatError
        If it is no table; the text names the line.
    """

    def __init__(self, path: str, reader: CSVReader) -> None:
        self.path = path
        self._reader = reader
        self._lock = new_lock(self)
        self._columns: dict[str, Array] | None = _read_columns(path, reader)
        located = [name for name in reader.coordinates if name in self._columns]
        if absent := sorted({*reader.coordinates, *reader.numeric, *reader.text} - set(self._columns)):
            raise FileFormatError(f"there are no columns {absent}", file=path, hint=_there_are(self._columns))
        dim = reader.dim or reader.time_column or "point"
        infos = {}
        for name, values in self._columns.items():
            attrs: dict[str, Any] = {}
            if name == reader.time_column:
                attrs = {
                    "units": reader.time_units or "seconds since 1970-01-01",
                    "calendar": get_calendar(reader.calendar).name,
                }
            elif located and name not in located:
                attrs = {"coordinates": " ".join(located)}
            chunks = virtual_chunks(values.shape, values.dtype.itemsize)
            infos[name] = ArrayInfo(name, (dim,), values.shape, values.dtype, attrs, chunks, key=name)
        self._arrays = MappingProxyType(infos)

    @property
    def arrays(self) -> Mapping[str, ArrayInfo]:
        """Every column, from left to right."""
        return self._arrays

    @property
    def own(self) -> frozenset[str]:
        """All of them: a table has no groups."""
        return frozenset(self._arrays)

    def close(self) -> None:
        """Forget the cells; the next read parses the file again."""
        with self._lock:
            self._columns = None

    def read_chunk(self, info: ArrayInfo, chunk: tuple[int, ...]) -> Array:
        """Give a part of a column; see :class:`~earthsciio.formats.base.OpenFile`."""
        with self._lock:
            if self._columns is None:
                try:
                    self._columns = _read_columns(self.path, self._reader)
                except EarthSciIOError:
                    raise
                except OSError as error:
                    raise DecodeError(
                        f"can't be read: {error}", file=self.path, variable=info.name, chunk=chunk
                    ) from error
            column = self._columns.get(info.key)
        if column is None or column.shape != info.shape or column.dtype != info.dtype:
            raise DecodeError("the file changed after it was opened", file=self.path, variable=info.name)
        return column[info.chunk_box(chunk)].copy()


def _there_are(names: Mapping[str, Any]) -> str:
    return f"There are {list(names)}"


def _rows(path: str, reader: CSVReader) -> Iterator[tuple[int, list[str]]]:
    """Yield the line number and cells of each row, spaces around cells removed."""
    comment = reader.comment
    encoding = reader.encoding.lower().replace("_", "-")
    encoding = "utf-8-sig" if encoding in ("utf-8", "utf8") else encoding
    try:
        with Path(path).open(encoding=encoding, newline="") as stream:
            # a comment becomes an empty line, so that quotes in it don't count and lines stay numbered
            lines = ("\n" if comment and line.startswith(comment) else line for line in stream)
            table = csv.reader(lines, delimiter=reader.delimiter, strict=True)
            try:
                for row in table:
                    if row:
                        yield table.line_num, [cell.strip() for cell in row]
            except csv.Error as error:
                raise FileFormatError(
                    f"not a table: {error}", file=path, line=table.line_num, hint="Is it truncated?"
                ) from error
    except (UnicodeDecodeError, LookupError) as error:
        raise FileFormatError(
            f"not text in {encoding}: {error}", file=path, hint="Name it in the reader option `encoding`"
        ) from error


def _read_columns(path: str, reader: CSVReader) -> dict[str, Array]:
    """Read a whole table."""
    rows = _rows(path, reader)
    line, header = next(rows, (0, []))
    if not header:
        raise FileFormatError("the table is empty", file=path, hint="The first row names the columns")
    if "" in header or len(set(header)) < len(header):
        raise FileFormatError(f"column names {header} are not distinct words", file=path, line=line)
    if reader.time_column is not None and reader.time_column not in header:
        raise FileFormatError(
            f"there is no time column {reader.time_column!r}", file=path, hint=f"There are {header}"
        )
    lines: list[int] = []
    cells: list[list[str]] = []
    empty = {"", *reader.missing}
    for line, row in rows:
        if len(row) != len(header):
            raise FileFormatError(
                f"{len(row)} cells in a table of {len(header)} columns", file=path, line=line,
                hint="Check the delimiter and quotes; the file may be truncated",
            )  # fmt: skip
        lines.append(line)
        cells.append(["" if cell in empty else cell for cell in row])
    return {
        name: _column(name, [row[position] for row in cells], lines, path, reader)
        for position, name in enumerate(header)
    }


def _column(name: str, cells: list[str], lines: list[int], path: str, reader: CSVReader) -> Array:
    if name == reader.time_column and reader.time_units is None:
        return np.array([_seconds(cell, line, path, reader) for cell, line in zip(cells, lines, strict=True)])
    demanded = name in reader.numeric or name == reader.time_column
    if name not in reader.text:
        numbers = np.empty(len(cells))
        for position, cell in enumerate(cells):
            number = _number(cell)
            if number is None and demanded:
                raise FileFormatError(
                    f"{cell!r} in the column {name!r} is no number", file=path, variable=name,
                    line=lines[position], hint="Name it in `missing` if it stands for an empty cell",
                )  # fmt: skip
            if number is None:
                break
            numbers[position] = number
        else:
            return numbers
    texts = np.empty(len(cells), dtype=object)
    texts[:] = cells
    return texts


def _number(cell: str) -> float | None:
    if cell == "":
        return math.nan
    try:
        # Python alone reads 1_000 and digits of other scripts as numbers
        return float(cell) if cell.isascii() and "_" not in cell else None
    except ValueError:
        return None


def _seconds(cell: str, line: int, path: str, reader: CSVReader) -> float:
    """Give an ISO time as seconds since 1970; NaN where there is none."""
    if cell == "":
        return math.nan
    try:
        own = get_calendar(reader.calendar)
        return own.instant(parse_time(cell, own.name)) / SECOND
    except DeclarationError as error:
        raise FileFormatError(
            f"{cell!r} in the column {reader.time_column!r} is no time", file=path, line=line,
            variable=reader.time_column, hint="Write 2019-07-01T12:00, or give `time_units` for numbers",
        ) from error  # fmt: skip
