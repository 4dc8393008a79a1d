"""Every key of a store's metadata documents, gone or replaced by what it should not be: our errors only."""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from earthsciio import EarthSciIOError, FileFormatError, ZarrReader
from earthsciio.contents import read_contents
from earthsciio.formats.base import ArrayInfo

#: Of every JSON type, out of every range; none asks for memory that is not there.
ODD: tuple[Any, ...] = (
    None, True, 0, -1, 1.5, 1 << 63, 10**400, 1e400, "", "x", "NaN", [], [0], [-1], [1.5], [10**30], ["x"],
    [None], [[1]], [[1], 2], [1.5, 10**400], [{}], {}, {"name": "x"}, {"name": 5, "configuration": None},
)  # fmt: skip
#: In place of a whole document.
RUBBISH = (
    b"", b"{", b"[]", b"null", b"5", b'"x"', b"{}", b"\xff\xfe", b"[" * 100_000, b'{"a":' * 100_000,
    b'{"shape": ' + b"9" * 5000 + b"}",
)  # fmt: skip
GONE = "(the key is gone)"


def store(path: Path, kind: str) -> Path:
    """Write a store with a packed array, its coordinate, and text, times and a group beside them."""
    version = 2 if kind.startswith("v2") else 3
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        root = zarr.open_group(path, mode="w", zarr_format=version)
        for name, data in (("v", np.arange(6, dtype="i2").reshape(2, 3)), ("x", np.arange(3.0))):
            dims = ["y", "x"][2 - data.ndim :]
            options: dict[str, Any] = {"dimension_names": dims} if version == 3 else {}
            if kind == "v3 sharded":
                options["shards"] = data.shape
            attributes = {"scale_factor": 0.5, "_FillValue": 5, "units": "m", "coordinates": "x"}
            if version == 2:
                attributes["_ARRAY_DIMENSIONS"] = dims
            array = root.create_array(
                name, shape=data.shape, dtype=data.dtype, chunks=data.shape, fill_value=0,
                attributes=attributes, **options,
            )  # fmt: skip
            array[...] = data
        if kind.endswith("consolidated"):
            zarr.consolidate_metadata(path)
    return path


KINDS = ("v2", "v2 consolidated", "v3", "v3 consolidated", "v3 sharded")


def documents(path: Path) -> list[Path]:
    """List the documents that describe the root and ``v``; consolidated ones stand for all."""
    names = ("zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata")
    every = [each for folder in (path, path / "v") for each in folder.iterdir() if each.name in names]
    inline = path / "zarr.json"
    if inline.exists() and "consolidated_metadata" in json.loads(inline.read_bytes()):
        return [inline]
    return sorted(each for each in every if each.name == ".zmetadata") or sorted(every)


def places(document: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every key and element."""
    items = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in items:
        yield (*at, key)
        if isinstance(value, (dict, list)):
            yield from places(value, (*at, key))


def replaced(document: Any, place: tuple[Any, ...], odd: Any) -> bytes:
    changed = copy.deepcopy(document)
    inner = changed
    for key in place[:-1]:
        inner = inner[key]
    if odd is GONE:
        del inner[place[-1]]
    else:
        inner[place[-1]] = odd
    return json.dumps(changed).encode()


def read(path: Path) -> str:
    """Read the array ``v`` of a store; give "read", or the name of our error. Anything else gets out."""
    reader = ZarrReader()
    try:
        file = reader.open(str(path))
    except EarthSciIOError as error:
        return type(error).__name__ if str(path) in str(error) else f"unnamed: {error}"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            contents = read_contents(file, (str(path),), str(path), reader, ("v",), None)
        variable = contents.fields["v"]
        if 0 not in variable.info.shape:
            variable.spec.convert(file.read_chunk(variable.info, (0,) * len(variable.info.shape)))
    except EarthSciIOError as error:
        return type(error).__name__
    return "read"


@pytest.mark.parametrize("kind", KINDS)
def test_every_key_gone_or_odd(tmp_path: Path, kind: str) -> None:
    path = store(tmp_path / "s", kind)
    assert read(path) == "read"
    for document in documents(path):
        original = document.read_bytes()
        parsed = json.loads(original)
        for place in places(parsed):
            if any(str(key).startswith("x") for key in place):  # the coordinate, which is like the field
                continue
            for odd in (GONE, *ODD):
                document.write_bytes(replaced(parsed, place, odd))
                try:
                    assert "unnamed" not in read(path)
                except Exception as error:
                    raise AssertionError(f"{document.name}: {place} = {str(odd)[:60]}") from error
        document.write_bytes(original)
    assert read(path) == "read"


@pytest.mark.parametrize("kind", KINDS)
def test_every_document_gone_or_rubbish(tmp_path: Path, kind: str) -> None:
    path = store(tmp_path / "s", kind)
    for document in documents(path):
        original = document.read_bytes()
        for rubbish in RUBBISH:
            document.write_bytes(rubbish)
            assert "unnamed" not in read(path)
        document.unlink()
        assert "unnamed" not in read(path)
        document.write_bytes(original)


@pytest.mark.parametrize(
    ("kind", "name", "place", "odd"),
    [
        ("v2", "v/.zarray", ("shape",), [2, -3]),
        ("v2", "v/.zarray", ("shape",), [2, 1 << 63]),
        ("v2", "v/.zarray", ("shape",), [2, 3.5]),
        ("v2", "v/.zarray", ("shape",), ["2", "3"]),
        ("v2", "v/.zarray", ("chunks",), [0, 3]),
        ("v2", "v/.zarray", ("chunks",), GONE),
        ("v2", "v/.zarray", ("dtype",), None),
        ("v2", "v/.zarray", ("zarr_format",), GONE),
        ("v2", "v/.zattrs", ("_ARRAY_DIMENSIONS",), "yx"),
        ("v2", "v/.zattrs", ("_ARRAY_DIMENSIONS",), [1, 2]),
        ("v2 consolidated", ".zmetadata", ("metadata",), GONE),
        ("v2 consolidated", ".zmetadata", ("metadata", "v/.zarray"), 5),
        ("v2 consolidated", ".zmetadata", ("metadata", "v/.zattrs"), [1]),
        ("v2 consolidated", ".zmetadata", ("metadata", "v/.zarray", "shape"), {}),
        ("v3", "v/zarr.json", ("shape",), [1 << 62, 1 << 61]),
        ("v3", "v/zarr.json", ("node_type",), GONE),
        ("v3", "v/zarr.json", ("node_type",), "table"),
        ("v3", "v/zarr.json", ("zarr_format",), 4),
        ("v3", "v/zarr.json", ("attributes",), [1]),
        ("v3", "v/zarr.json", ("chunk_grid", "configuration", "chunk_shape"), [0, 3]),
        ("v3", "v/zarr.json", ("codecs",), []),
        ("v3", "v/zarr.json", ("dimension_names",), {"y": 2, "x": 3}),
        ("v3", "zarr.json", ("node_type",), GONE),
        ("v3 consolidated", "zarr.json", ("consolidated_metadata", "metadata"), [1]),
        ("v3 consolidated", "zarr.json", ("consolidated_metadata", "metadata", "v"), 5),
        ("v3 sharded", "v/zarr.json", ("codecs", 0, "configuration", "chunk_shape"), [-1, 3]),
    ],
    ids=str,
)
def test_what_contradicts_the_format_names_store_and_key(
    tmp_path: Path, kind: str, name: str, place: tuple[Any, ...], odd: Any
) -> None:
    path = store(tmp_path / "s", kind)
    document = path / name
    document.write_bytes(replaced(json.loads(document.read_bytes()), place, odd))
    with pytest.raises(FileFormatError) as caught:
        ZarrReader().open(str(path))
    assert caught.value.file == str(path)
    assert name in str(caught.value)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("odd", [[1.5, 10**400], [[1], 2], {"a": [1]}, 10**400])
@pytest.mark.parametrize("name", ["comment", "missing_value", "valid_range"])
def test_an_odd_attribute_harms_nobody(tmp_path: Path, name: str, odd: Any) -> None:
    path = store(tmp_path / "s", "v3")
    document = path / "v" / "zarr.json"
    metadata = json.loads(document.read_bytes())
    metadata["attributes"][name] = odd
    document.write_text(json.dumps(metadata))
    assert read(path) == "read"


def test_consolidated_metadata_that_are_not_wanted_may_be_damaged(tmp_path: Path) -> None:
    path = store(tmp_path / "s", "v2 consolidated")
    (path / ".zmetadata").write_text('{"metadata": 5}')
    with pytest.raises(FileFormatError, match=r"\.zmetadata"):
        ZarrReader().open(str(path))
    assert set(ZarrReader(consolidated=False).open(str(path)).arrays) == {"v", "x"}


def test_a_variable_that_no_memory_could_hold_is_no_variable() -> None:
    with pytest.raises(ValueError, match="huge"):
        ArrayInfo("huge", ("x", "y"), (1 << 40, 1 << 40), np.dtype("f8"), {}, (1, 1))
    with pytest.raises(ValueError, match="negative"):
        ArrayInfo("v", ("x",), (-1,), np.dtype("f8"), {}, (1,))
