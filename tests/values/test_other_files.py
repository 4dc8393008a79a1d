"""HDF5 datasets whose elements lie in other files: what is missing is an error that names it, never fill."""

import h5py
import numpy as np
import pytest
from h5py import h5p, h5s
from inputs import assert_values, hdf5, read, values

from earthsciio import DecodeError, NetCDFReader


def virtual(path, sources, length=4, name="v"):
    """Write a virtual dataset that joins datasets of `length` elements end to end, with the fill -1."""
    layout = h5py.VirtualLayout((length * len(sources),), "i8")
    for number, (file, dataset) in enumerate(sources):
        layout[number * length : (number + 1) * length] = h5py.VirtualSource(file, dataset, (length,))
    with h5py.File(path, "a") as whole:
        whole.create_virtual_dataset(name, layout, fillvalue=-1)
    return path


def numbered(path, patterns, dataset="v"):
    """Write a virtual dataset of rows without end: block i of each pair of columns is file ``%b`` = i."""
    plist = h5p.create(h5p.DATASET_CREATE)
    plist.set_fill_value(np.array(-1, "i8"))
    shape = (2, 2 * len(patterns))
    for number, pattern in enumerate(patterns):
        rows = h5s.create_simple(shape, (h5s.UNLIMITED, shape[1]))
        rows.select_hyperslab((0, 2 * number), (h5s.UNLIMITED, 1), stride=(2, 2), block=(2, 2))
        plist.set_virtual(rows, pattern.encode(), dataset.encode(), h5s.create_simple((2, 2)))
    with h5py.File(path, "w") as file:
        space = h5s.create_simple(shape, (h5s.UNLIMITED, shape[1]))
        h5py.h5d.create(file.id, b"v", h5py.h5t.NATIVE_INT64, space, plist)
    return path


# spec: V8.9
def test_a_virtual_dataset_whose_source_is_missing_is_an_error_not_fill(tmp_path):
    part = hdf5(tmp_path / "part.h5", np.arange(4))
    whole = virtual(tmp_path / "whole.h5", [("part.h5", "v")])
    assert_values(values(whole), range(4), np.int64)
    part.unlink()
    with pytest.raises(
        DecodeError, match=r"'v' of the file 'part\.h5', which is not there.*whole.*variable=v"
    ):
        values(whole)


# spec: V8.9
@pytest.mark.parametrize("instead", ["nothing", "group", "link", "rubbish", "folder"])
def test_a_source_file_that_does_not_hold_the_dataset_is_an_error(tmp_path, instead):
    part = tmp_path / "part.h5"
    whole = virtual(tmp_path / "whole.h5", [("part.h5", "deep/v")])
    if instead == "rubbish":
        part.write_bytes(b"rubbish")
    elif instead == "folder":
        part.mkdir()
    else:
        with h5py.File(part, "w") as file:
            file["v"] = np.arange(4)
            if instead == "group":
                file.create_group("deep/v")
            elif instead == "link":
                file["deep/v"] = h5py.SoftLink("/nowhere")
    with pytest.raises(DecodeError, match=r"'deep/v' of the file 'part\.h5'.*whole\.h5.*variable=v"):
        values(whole)


# spec: V8.9
def test_a_missing_source_of_a_nested_virtual_dataset_is_an_error(tmp_path):
    (tmp_path / "parts").mkdir()
    part = hdf5(tmp_path / "parts" / "part.h5", np.arange(4))
    virtual(tmp_path / "parts" / "middle.h5", [("part.h5", "v")])
    whole = virtual(tmp_path / "whole.h5", [("parts/middle.h5", "v")])
    assert_values(values(whole), range(4), np.int64)
    part.unlink()
    with pytest.raises(
        DecodeError, match=r"'v' of the file 'part\.h5', which is not there.*whole.*variable=v"
    ):
        values(whole)


def test_a_dataset_of_the_same_file_may_be_a_source(tmp_path):
    path = virtual(hdf5(tmp_path / "a.h5", np.arange(4)), [(".", "v"), (".", "v")], name="twice")
    assert_values(values(path, "twice"), [0, 1, 2, 3] * 2, np.int64)
    path = virtual(hdf5(tmp_path / "b.h5", np.arange(4)), [(".", "v"), (".", "w")], name="twice")
    with pytest.raises(DecodeError, match=r"'w' of the file '\.', which has no such dataset.*variable=twice"):
        values(path, "twice")


def test_a_virtual_dataset_made_of_itself_is_an_error_and_no_crash(tmp_path):
    virtual(tmp_path / "a.h5", [("b.h5", "v")])
    virtual(tmp_path / "b.h5", [("a.h5", "v")])
    with pytest.raises(DecodeError, match=r"made of itself.*a\.h5, variable=v"):
        values(tmp_path / "a.h5")


def test_only_the_sources_that_a_window_touches_have_to_be_there(tmp_path):
    """As with damaged chunks: what is not read can't be wrong."""
    length = 1 << 18  # each source makes more than one piece of those that are read at once
    sources = []
    for name in ("one.h5", "two.h5"):
        hdf5(tmp_path / name, np.full(length, len(sources)))
        sources.append((name, "v"))
    whole = virtual(tmp_path / "whole.h5", sources, length)
    (tmp_path / "two.h5").unlink()
    dim = "phony_dim_0"
    window = {"dims": {dim: (length - 3, length)}}
    assert read(whole, "v", window=window)["v"].data.tolist() == [0, 0, 0]
    with pytest.raises(DecodeError, match=r"two\.h5"):
        read(whole, "v", window={"dims": {dim: (length - 3, length + 1)}})


# spec: V8.9
@pytest.mark.parametrize("pattern", ["a_%b.h5", "50%%_%b.h5"])
def test_numbered_sources_are_read_and_a_missing_one_is_an_error(tmp_path, pattern):
    name = pattern.replace("%%", "%")
    for block in range(3):
        hdf5(tmp_path / name.replace("%b", str(block)), np.full((2, 2), block))
        hdf5(tmp_path / f"b{block}.h5", np.full((2, 2), 10 + block))
    patterns = [pattern, "b%b.h5"]
    expected = np.repeat([[0, 0, 10, 10], [1, 1, 11, 11], [2, 2, 12, 12]], 2, axis=0)
    assert_values(values(numbered(tmp_path / "all.h5", patterns)), expected, np.int64)
    (tmp_path / "b1.h5").unlink()
    with pytest.raises(DecodeError, match=r"'v' of the file 'b1\.h5', which is not there.*variable=v"):
        values(numbered(tmp_path / "some.h5", patterns))
    (tmp_path / name.replace("%b", "1")).unlink()  # a series of files ends before the first that none has
    assert_values(values(numbered(tmp_path / "first.h5", patterns)), expected[:2], np.int64)


def test_numbered_datasets_of_one_file(tmp_path):
    with h5py.File(tmp_path / "parts.h5", "w") as file:
        file["v0"], file["v1"] = np.zeros((2, 2), int), np.ones((2, 2), int)
        file["w0"] = np.full((2, 2), 5)
    path = numbered(tmp_path / "one.h5", ["parts.h5"], "v%b")
    assert_values(values(path), [[0, 0], [0, 0], [1, 1], [1, 1]], np.int64)
    path = numbered(tmp_path / "two.h5", ["parts.h5"], "w%b")
    assert_values(values(path), np.full((2, 2), 5), np.int64)


def test_sources_that_go_while_the_file_is_in_use_do_not_shorten_it_to_fill(tmp_path):
    for block in range(3):
        hdf5(tmp_path / f"a{block}.h5", np.full((2, 2), block))
    path = numbered(tmp_path / "whole.h5", ["a%b.h5"])
    file = NetCDFReader().open(str(path))
    assert file.arrays["v"].shape == (6, 2)
    (tmp_path / "a2.h5").unlink()
    with pytest.raises(DecodeError, match=r"a2\.h5|shape \(4, 2\) by now, not \(6, 2\)"):
        file.read_chunk(file.arrays["v"], (0, 0))


def test_sources_are_looked_for_where_hdf5_looks(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    hdf5(tmp_path / "elsewhere" / "part.h5", np.arange(4))
    whole = virtual(tmp_path / "whole.h5", [("/no/such/folder/part.h5", "v")])
    with pytest.raises(DecodeError, match=r"/no/such/folder/part\.h5"):
        values(whole)
    monkeypatch.setenv("HDF5_VDS_PREFIX", f"/nowhere:{tmp_path / 'elsewhere'}")
    assert_values(values(whole), range(4), np.int64)
    monkeypatch.delenv("HDF5_VDS_PREFIX")
    hdf5(tmp_path / "part.h5", np.arange(4) + 1)
    assert_values(values(whole), range(1, 5), np.int64)


# Raw data files


# spec: V8.9
@pytest.mark.parametrize("kept", [0, 5, 31])
@pytest.mark.parametrize("through", ["directly", "virtual"])
def test_a_short_raw_data_file_is_refused(tmp_path, kept, through):
    raw = tmp_path / "values.bin"
    path = hdf5(tmp_path / "a.h5", np.array([1, 500, 3, 4]), external=[(str(raw), 0, h5py.h5f.UNLIMITED)])
    if through == "virtual":
        path = virtual(tmp_path / "whole.h5", [("a.h5", "v")])
    assert_values(values(path), [1, 500, 3, 4], np.int64)
    raw.write_bytes(raw.read_bytes()[:kept])
    with pytest.raises(DecodeError, match="ends before byte 32"):
        values(path)
