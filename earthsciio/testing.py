"""The conformance suite of a reader, for whoever writes one.

A reader is right if what it says of a file is what is in it, whoever asks, when, and through which Window.
Write a :class:`Subject` (a file, its true contents, and how to make the reader), and every function of
:data:`CHECKS` either returns or raises :class:`NonConforming`. With pytest::

    from earthsciio import testing

    @pytest.mark.parametrize("check", testing.CHECKS, ids=lambda check: check.__name__)
    def test_conformance(check, tmp_path):
        for subject in testing.write_subjects(MyReader, my_writer, tmp_path):
            check(subject)

`my_writer(path, contents)` writes stored elements, dimensions and attributes as they are given. Where a
format can't hold the contents of :func:`example_contents`, give files and contents of your own.
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from .errors import EarthSciIOError, SelectionError, UnknownReaderOption
from .fields import Array
from .formats import ArrayInfo, OpenFile, Reader, create_reader
from .provider import Provider
from .registry import Registry
from .selection import Window
from .source import DataSource

__all__ = [
    "CHECKS",
    "Contents",
    "NonConforming",
    "StoredArray",
    "Subject",
    "check_all",
    "example_contents",
    "write_subjects",
]

_THREADS = 4


class NonConforming(AssertionError):
    """A reader that breaks the contract; the text says where and how."""


@dataclass(frozen=True, slots=True)
class StoredArray:
    """One array as it is stored.

    Attributes
    ----------
    dims : tuple of str
        Dimension names.
    data : numpy.ndarray
        Stored elements, before any value rule; object arrays of str are text.
    attrs : mapping
        Attributes that the file has at least.
    """

    dims: tuple[str, ...]
    data: Array
    attrs: Mapping[str, Any] = field(default_factory=dict)


#: What a file holds, by on-disk name.
Contents: TypeAlias = Mapping[str, StoredArray]


@dataclass(frozen=True, slots=True)
class Subject:
    """A file to run the suite on.

    Attributes
    ----------
    reader : type of Reader, or a function like it
        Called with reader options.
    path : str
        The file or store.
    contents : Contents
        What it truly holds.
    finds_truncation : bool
        Whether a cut file can always be told from a whole one; of most text formats it can't.
    """

    reader: Callable[..., Reader]
    path: str
    contents: Contents
    finds_truncation: bool = True


def example_contents() -> dict[str, Contents]:
    """Give small contents that between them have every rank, integer, float and empty array."""
    grid = np.arange(2 * 3 * 5, dtype="f4").reshape(2, 3, 5)
    axes = {
        "lev": StoredArray(("lev",), np.array([1, 2], "i4")),
        "lat": StoredArray(("lat",), np.array([10.0, 0.0, -10.0]), {"units": "degrees_north"}),
        "lon": StoredArray(("lon",), np.linspace(0, 288, 5), {"units": "degrees_east"}),
    }
    return {
        "grid": {
            **axes,
            "v": StoredArray(("lev", "lat", "lon"), grid, {"units": "K"}),
            "count": StoredArray(("lat", "lon"), np.arange(15, dtype="i2").reshape(3, 5)),
            "scalar": StoredArray((), np.array(2.5)),
        },
        "long": {"v": StoredArray(("x",), np.arange(5000, dtype="f8"))},
        "empty": {"v": StoredArray(("x",), np.zeros(0, "f4"))},
    }


def write_subjects(
    reader: Callable[..., Reader],
    write: Callable[[Path, Contents], Path | None],
    directory: Path,
    contents: Mapping[str, Contents] | None = None,
    *,
    finds_truncation: bool = True,
) -> Iterator[Subject]:
    """Write files with the caller's writer and give a Subject of each.

    Parameters
    ----------
    reader : type of Reader, or a function like it
        The reader under test.
    write : callable
        ``write(path, contents)``; returns another path if it had to add a suffix.
    directory : pathlib.Path
        Where to write.
    contents : mapping of str to Contents, optional
        By name; :func:`example_contents` by default.
    finds_truncation : bool
        See :class:`Subject`.
    """
    for name, each in (example_contents() if contents is None else contents).items():
        path = directory / name
        path = write(path, each) or path
        yield Subject(reader, str(path), each, finds_truncation)


def check_all(subject: Subject) -> None:
    """Run every check.

    Raises
    ------
    NonConforming
        At the first one that fails.
    """
    for check in CHECKS:
        check(subject)


# Checks.


def options_are_checked(subject: Subject) -> None:
    """Refuse an option that the reader does not have when the provider is made."""
    registry = _registry(subject)
    if not isinstance(subject.reader, type):
        return  # a function checks its own arguments
    try:
        create_reader("subject", {"no_such_option": 1}, registry)
    except UnknownReaderOption:
        pass
    else:
        raise NonConforming("an unknown option was accepted")
    _require(
        {each.name for each in fields(Reader)} <= {each.name for each in fields(subject.reader)},
        "the reader lacks options that every reader has",
    )


def readers_are_values(subject: Subject) -> None:
    """Compare readers by their options: that is how open files are shared."""
    one, other = subject.reader(), subject.reader()
    _require(one == other and hash(one) == hash(other), "two readers without options differ")
    _require(subject.reader(sort_time=True) != one, "readers with different options are equal")


def identity_tells_versions_apart(subject: Subject) -> None:
    """Give an identity that starts with the path and changes when the file is written, and only then."""
    reader = subject.reader()
    with _copy(subject.path) as path:
        first = reader.identity(path)
        _require(isinstance(first, tuple) and first[0] == path, f"{first!r} does not start with the path")
        hash(first)
        file = reader.open(path)
        for info in file.arrays.values():
            _read_all(file, info)
        file.close()
        _require(reader.identity(path) == first, "reading changed the identity")
        _replace(path, subject.path)
        _require(reader.identity(path) != first, "the file was replaced, and has the same identity")


def metadata_are_those_of_the_file(subject: Subject) -> None:
    """Tell names, dimensions, shapes, types and attributes as they were written."""
    file = subject.reader().open(subject.path)
    _require(file.own <= set(file.arrays), "own names arrays that there are not")
    for name, stored in subject.contents.items():
        _require(name in file.arrays, f"there is no array {name!r}, but {list(file.arrays)}")
        info = file.arrays[name]
        _require(info.name == name, f"{name!r} is called {info.name!r}")
        _require(info.dims == stored.dims, f"{name}: dims {info.dims}, not {stored.dims}")
        _require(info.shape == stored.data.shape, f"{name}: shape {info.shape}, not {stored.data.shape}")
        _require(
            info.dtype.newbyteorder("=") == stored.data.dtype,
            f"{name}: dtype {info.dtype}, not {stored.data.dtype}",
        )
        for key, value in stored.attrs.items():
            _require(key in info.attrs, f"{name}: the attribute {key!r} is lost")
            _require(bool(np.all(info.attrs[key] == value)), f"{name}: {key!r} is {info.attrs[key]!r}")
    file.close()


def metadata_never_change(subject: Subject) -> None:
    """Leave the metadata as they were through reads and close, and give the same when opened again."""
    file = subject.reader().open(subject.path)
    before = _described(file)
    for info in file.arrays.values():
        if not info.unsupported:
            _read_all(file, info)
    file.close()
    _require(_described(file) == before, "reading and closing changed the metadata")
    again = subject.reader().open(subject.path)
    _require(_described(again) == before, "opening again gave other metadata")
    again.close()


def chunks_make_up_the_array(subject: Subject) -> None:
    """Read chunks in the shape of their box and the array's dtype, together what was stored."""
    file = subject.reader().open(subject.path)
    for name, stored in subject.contents.items():
        whole = _read_all(file, file.arrays[name])
        _require(_same(whole, stored.data), f"{name}: the chunks hold other elements than were stored")
    file.close()


def chunks_are_the_callers_own(subject: Subject) -> None:
    """Hand out arrays that the caller may write into without changing what is read later."""
    file = subject.reader().open(subject.path)
    for name, stored in subject.contents.items():
        info = file.arrays[name]
        for chunk in _grid(info):
            raw = file.read_chunk(info, chunk)
            if raw.flags.writeable and raw.size:
                raw[...] = raw.reshape(-1)[-1:] if raw.dtype.kind == "O" else np.zeros(1, raw.dtype)
        _require(_same(_read_all(file, info), stored.data), f"{name}: a caller's write came back")
    file.close()


def closed_files_open_again(subject: Subject) -> None:
    """Give descriptors back on close, also on a second one, and open again at the next read."""
    file = subject.reader().open(subject.path)
    name, stored = _largest(subject.contents)
    _read_all(file, file.arrays[name])
    file.close()
    idle = _descriptors()
    for _ in range(3):
        _require(
            _same(_read_all(file, file.arrays[name]), stored.data), "read after close gave other elements"
        )
        file.close()
        file.close()
    _require(_descriptors() <= idle, "close did not give descriptors back")


def threads_read_together(subject: Subject) -> None:
    """Read from any thread at any time, also while another one closes the file."""
    file = subject.reader().open(subject.path)
    failures: list[str] = []
    start = threading.Barrier(_THREADS)

    def read(number: int) -> None:
        start.wait()
        try:
            for turn in range(3):
                for name, stored in subject.contents.items():
                    if not _same(_read_all(file, file.arrays[name]), stored.data):
                        failures.append(f"{name}: another thread saw other elements")
                if (turn + number) % 2:
                    file.close()
        except Exception as error:  # noqa: BLE001 - whatever a reader raises, the suite reports
            failures.append(f"{type(error).__name__}: {error}")

    threads = [threading.Thread(target=read, args=(number,)) for number in range(_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    file.close()
    _require(not failures, "; ".join(dict.fromkeys(failures)))


def windows_are_slices_of_the_whole(subject: Subject) -> None:
    """Read through a Window what slicing the full read by name gives, coordinates too, bit for bit."""
    whole = _provider(subject).materialize()
    sizes = {
        dim: size
        for each in whole.variables.values()
        for dim, size in zip(each.dims, each.shape, strict=True)
    }
    for window in _windows(sizes):
        part = _provider(subject).with_window(window).materialize()
        for name in (*whole.variable_names(), *whole.coord_names()):
            index = np.ix_(*(_indices(window, dim, sizes[dim]) for dim in whole[name].dims))
            expected = whole[name].data[index] if whole[name].dims else whole[name].data
            _require(_same(part[name].data, expected), f"{name} through {window} differs from the slice")
            _require(part[name].data.dtype == whole[name].data.dtype, f"{name}: dtype depends on {window}")


def windows_out_of_range_are_refused(subject: Subject) -> None:
    """Refuse a selector past the end (IndexError) and a dimension that there is not (ValueError)."""
    name, stored = _largest(subject.contents)
    if not stored.dims:
        return
    dim, size = stored.dims[0], stored.data.shape[0]
    for selector in ((0, size + 1), [size], (size + 1, size + 1)):
        try:
            _provider(subject, name).with_window(Window({dim: selector})).materialize()
        except IndexError as error:
            _require(isinstance(error, EarthSciIOError), f"{selector}: {error!r} is not typed")
        else:
            raise NonConforming(f"{selector} of {size} was accepted")
    try:
        _provider(subject, name).with_window(Window({"no_such_dim": (0, 1)})).materialize()
    except SelectionError:
        pass
    else:
        raise NonConforming("a dimension that there is not was accepted")


def what_is_no_such_file_is_refused(subject: Subject) -> None:
    """Raise typed errors that name the file for missing and empty files and for rubbish."""
    with tempfile.TemporaryDirectory() as directory:
        suffix = Path(subject.path).suffix
        rubbish = Path(directory, f"rubbish{suffix}")
        rubbish.write_bytes(bytes(range(256)) * 4)
        empty = Path(directory, f"empty{suffix}")
        empty.touch()
        for path in (rubbish, empty, Path(directory, f"missing{suffix}")):
            source = DataSource("subject", "subject", str(path))
            try:
                Provider(source, formats=_registry(subject)).materialize()
            except EarthSciIOError as error:
                _require(isinstance(error, OSError), f"{path.stem}: {error!r} is no OSError")
                _require(str(path) in str(error), f"{path.stem}: {error!r} does not name the file")
            else:
                raise NonConforming(f"the {path.stem} file was read")


def cut_files_are_never_read_as_if_whole(subject: Subject) -> None:
    """Raise a typed error, or give the right elements, where a file or object of a store is cut short."""
    if not subject.finds_truncation:
        return
    with _copy(subject.path) as path:
        for part in _files(path):
            whole = part.read_bytes()
            for length in sorted({0, len(whole) // 2, len(whole) - 1} - {len(whole), -1}):
                part.write_bytes(whole[:length])
                try:
                    file = subject.reader().open(path)
                    for name, stored in subject.contents.items():
                        found = file.arrays.get(name)
                        if found is not None:
                            right = _same(_read_all(file, found), stored.data)
                            _require(right, f"{name} of {part.name}, cut at {length}, has other elements")
                    file.close()
                except EarthSciIOError as error:
                    _require(isinstance(error, OSError), f"cut at {length}: {error!r} is no OSError")
            part.write_bytes(whole)


#: Every check: a function of a Subject that raises NonConforming.
CHECKS: tuple[Callable[[Subject], None], ...] = (
    options_are_checked,
    readers_are_values,
    identity_tells_versions_apart,
    metadata_are_those_of_the_file,
    metadata_never_change,
    chunks_make_up_the_array,
    chunks_are_the_callers_own,
    closed_files_open_again,
    threads_read_together,
    windows_are_slices_of_the_whole,
    windows_out_of_range_are_refused,
    what_is_no_such_file_is_refused,
    cut_files_are_never_read_as_if_whole,
)


# Tools.


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise NonConforming(message)


def _registry(subject: Subject) -> Registry[Reader]:
    registry: Registry[Reader] = Registry("format")
    registry.register("subject", subject.reader)
    return registry


def _provider(subject: Subject, *variables: str) -> Provider:
    source = DataSource("subject", "subject", subject.path, variables=variables)
    return Provider(source, formats=_registry(subject))


def _grid(info: ArrayInfo) -> Iterator[tuple[int, ...]]:
    counts = (-(-size // length) for size, length in zip(info.shape, info.chunks, strict=True))
    return itertools.product(*(range(count) for count in counts))


def _read_all(file: OpenFile, info: ArrayInfo) -> Array:
    whole = np.empty(info.shape, dtype=info.dtype)
    for chunk in _grid(info):
        box = info.chunk_box(chunk)
        raw = file.read_chunk(info, chunk)
        extent = tuple(part.stop - part.start for part in box)
        _require(raw.shape == extent, f"{info.name}: chunk {chunk} has shape {raw.shape}, not {extent}")
        _require(raw.dtype == info.dtype, f"{info.name}: chunk {chunk} is {raw.dtype}, not {info.dtype}")
        whole[box] = raw
    return whole


def _same(one: Array, other: Array) -> bool:
    """Whether two arrays hold the same bits, byte order aside."""
    if one.shape != other.shape or one.dtype.newbyteorder("=") != other.dtype.newbyteorder("="):
        return False
    if one.dtype.kind == "O":
        return bool(np.array_equal(one, other))
    native = [each.astype(each.dtype.newbyteorder("=")).tobytes() for each in (one, other)]
    return native[0] == native[1]


def _described(file: OpenFile) -> list[tuple[Any, ...]]:
    return [
        (
            name, info.name, info.dims, info.shape, info.dtype, info.chunks, info.unsupported,
            {key: repr(value) for key, value in info.attrs.items()}, name in file.own,
        )
        for name, info in file.arrays.items()
    ]  # fmt: skip


def _largest(contents: Contents) -> tuple[str, StoredArray]:
    return max(contents.items(), key=lambda item: (item[1].data.ndim, item[1].data.size))


def _windows(sizes: Mapping[str, int]) -> Iterator[Window]:
    yield Window(dict.fromkeys(sizes, (0, 0)))
    yield Window({dim: [] for dim in sizes})
    filled = {dim: size for dim, size in sizes.items() if size}
    yield Window({dim: (size // 2, size) for dim, size in filled.items()})
    yield Window({dim: (0, size, 2) for dim, size in filled.items()})
    yield Window({dim: [size - 1, 0, 0, size // 2] for dim, size in filled.items()})
    for dim, size in filled.items():
        yield Window({dim: (size - 1, size)})


def _indices(window: Window, dim: str, size: int) -> Array:
    selector = window.selector(dim)
    return np.arange(size) if selector is None else selector.indices()


def _descriptors() -> int:
    listing = Path("/proc/self/fd")
    return len(os.listdir(listing)) if listing.exists() else 0  # noqa: PTH208 - a count, of numbers


@contextmanager
def _copy(path: str) -> Iterator[str]:
    """Give a copy of a file or store that may be damaged."""
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory, Path(path).name)
        if Path(path).is_dir():
            shutil.copytree(path, copy)
        else:
            shutil.copy(path, copy)
        yield str(copy)


def _replace(path: str, original: str) -> None:
    """Write a file or store anew, as a program would that produces it again."""
    old, new = Path(path), Path(f"{path}.new")
    if old.is_dir():
        shutil.copytree(original, new, copy_function=shutil.copyfile)
        shutil.move(old, f"{path}.old")
    else:
        shutil.copyfile(original, new)
    new.replace(old)


def _files(path: str) -> list[Path]:
    root = Path(path)
    return sorted(each for each in root.rglob("*") if each.is_file()) if root.is_dir() else [root]
