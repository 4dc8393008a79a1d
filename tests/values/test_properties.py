"""A value never depends on how it was asked for: random files, series and Windows.

Files are written with netCDF4 or h5py from arrays the test keeps; the right values are decoded from those
arrays by a few lines of NumPy below, which share nothing with the library. EARTHSCIIO_FUZZ_EXAMPLES sets how
many examples each of the five properties gets; the suite keeps to few.
"""

import os
import warnings
from datetime import UTC, datetime, timedelta

import h5py
import netCDF4
import numpy as np
import xarray as xr
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from inputs import same_bits

from earthsciio import DataSource, Provider, SourceTemporal, Window
from earthsciio.formats import files

EXAMPLES = int(os.environ.get("EARTHSCIIO_FUZZ_EXAMPLES", "30"))
fuzz = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
    ],
)

FLOATS, SMALL, LARGE = ("f4", "f8"), ("i1", "u1", "i2", "u2"), ("i4", "u4", "i8", "u8")
CLASSIC = {"i1", "i2", "i4", "f4", "f8"}


class Stored:
    """One variable as it is to be stored, and the values it means."""

    def __init__(self, dims, raw, attrs, chunks, filters, endian):
        self.dims, self.raw, self.attrs = dims, raw, attrs
        self.chunks, self.filters, self.endian = chunks, filters, endian

    def __repr__(self):
        return f"Stored({self.dims}, {self.raw!r}, {self.attrs}, {self.chunks}, {self.filters})"

    def expected(self, precision):
        """Decode by the rules of spec/values.md, in the order they are written there."""
        raw, attrs = self.raw, self.attrs
        is_float = raw.dtype.kind == "f"
        missing = np.zeros(raw.shape, bool)
        masks = [np.atleast_1d(attrs[name]) for name in ("_FillValue", "missing_value") if name in attrs]
        for value in np.concatenate([m.astype(raw.dtype) for m in masks]) if masks else ():
            missing |= np.isnan(raw) if value != value else raw == value
        if is_float and "_FillValue" not in attrs:
            missing |= raw == raw.dtype.type(9.969209968386869e36)
        scale, offset = attrs.get("scale_factor"), attrs.get("add_offset")
        identity = (scale is None or scale == 1) and (offset is None or offset == 0)
        packed = not identity if is_float else scale is not None or offset is not None
        if not is_float and not packed and not masks:
            return raw
        with np.errstate(all="ignore"):
            out = raw.astype("f8")
            if packed and scale is not None:
                out = out * np.float64(scale)
            if packed and offset is not None:
                out = out + np.float64(offset)
            parameters = [p for p in (scale, offset) if p is not None]
            single = packed and not is_float and raw.dtype.itemsize <= 2
            single = single and all(p.dtype == np.float32 for p in parameters)
            if precision == "source" and (single or (is_float and not packed)):
                out = out.astype("f4" if single else raw.dtype)
        return np.where(missing, out.dtype.type(np.nan), out)


@st.composite
def arrays(draw, shape, dtype):
    """Elements with the awkward ones among them, from few bytes of entropy."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        raw = rng.normal(scale=100, size=shape).astype(dtype)
        specials = np.array([np.nan, -0.0, np.inf, -np.inf, 9.969209968386869e36, 1e-40, -999, 1e20], dtype)
    else:
        info = np.iinfo(dtype)
        bound = min(info.max, 2**40)
        raw = rng.integers(max(info.min, -bound), bound, size=shape, dtype=dtype, endpoint=True)
        specials = np.array([max(info.min, -(2**53)), min(info.max, 2**53), 0, 1], dtype)
    odd = rng.random(shape) < 0.3
    return np.where(odd, rng.choice(specials, size=shape), raw).astype(dtype)


@st.composite
def packings(draw, raw):
    attrs = {}
    present = raw.ravel()[:4].tolist() or [0]
    pick = st.sampled_from(present)
    if draw(st.booleans()):
        attrs["_FillValue"] = raw.dtype.type(draw(pick))
    if draw(st.booleans()):
        some = np.array(draw(st.lists(pick, min_size=1, max_size=3)), raw.dtype)
        attrs["missing_value"] = some if len(some) > 1 else some[0]
    width = draw(st.sampled_from([np.float32, np.float64]))
    if draw(st.booleans()):
        attrs["scale_factor"] = width(draw(st.sampled_from([1.0, 0.1, 2.5, -3e-5])))
    if draw(st.booleans()):
        attrs["add_offset"] = draw(st.sampled_from([np.float32, width]))(
            draw(st.sampled_from([0.0, 273.15, -7]))
        )
    return attrs


@st.composite
def stored_variables(draw, sizes, dims, classic):
    dtype = draw(st.sampled_from(sorted(CLASSIC) if classic else [*FLOATS, *SMALL, *LARGE]))
    shape = tuple(sizes[dim] for dim in dims)
    raw = draw(arrays(shape, dtype))
    attrs = draw(packings(raw))
    chunks = filters = None
    if dims and not classic and draw(st.booleans()):
        chunks = tuple(draw(st.integers(1, max(size, 1))) for size in shape)
        filters = {
            "zlib": draw(st.booleans()),
            "complevel": draw(st.integers(1, 9)),
            "shuffle": draw(st.booleans()),
            "fletcher32": draw(st.booleans()),
        }
    return Stored(dims, raw, attrs, chunks, filters, draw(st.sampled_from(["native", "big"])))


DIMS = ("time", "lev", "lat", "lon")


@st.composite
def contents(draw, dims=DIMS, least=0):
    """A file: dimension sizes, and variables of mixed rank, by name."""
    classic = draw(st.booleans())
    sizes = {dim: draw(st.integers(max(least, 1 if classic else 0), 7)) for dim in dims}
    names = draw(st.integers(1, 3))
    variables = {}
    for k in range(names):
        subset = draw(st.permutations(dims))[: draw(st.integers(0 if k else 1, len(dims)))]
        ordered = tuple(subset) if draw(st.booleans()) else tuple(d for d in dims if d in subset)
        variables[f"v{k}"] = draw(stored_variables(sizes, ordered, classic))
    for dim in draw(st.sets(st.sampled_from(dims))):
        variables[dim] = draw(stored_variables(sizes, (dim,), classic))
    return classic, sizes, variables


def write(path, classic, sizes, variables, unlimited=()):
    files.close_idle()
    path.unlink(missing_ok=True)
    with (
        warnings.catch_warnings(),
        netCDF4.Dataset(path, "w", format="NETCDF3_CLASSIC" if classic else "NETCDF4") as file,
    ):
        warnings.simplefilter("ignore")
        for dim, size in sizes.items():
            file.createDimension(dim, None if dim in unlimited else size)
        for name, v in variables.items():
            options = dict(v.filters or {})
            if v.chunks:
                options["chunksizes"] = v.chunks
            endian = "big" if v.endian == "big" and not classic else "native"
            dtype = v.raw.dtype.newbyteorder(">") if endian == "big" else v.raw.dtype
            fill = v.attrs.get("_FillValue")
            if fill is not None and endian == "big":
                fill = fill.astype(dtype)
            variable = file.createVariable(name, dtype, v.dims, endian=endian, fill_value=fill, **options)
            variable.set_auto_maskandscale(False)
            variable.setncatts({k: a for k, a in v.attrs.items() if k != "_FillValue"})
            if v.raw.size:
                variable[...] = v.raw
    return path


def selectors(size):
    slices = st.tuples(st.integers(0, size), st.integers(0, size), st.integers(1, 4)).map(
        lambda s: (min(s[:2]), max(s[:2]), s[2])
    )
    wrapped = st.integers(0, max(size - 1, 0)).map(lambda k: [*range(k, size), *range(k)])
    indices = st.lists(st.integers(0, size - 1), max_size=9) if size else st.just([])
    return st.one_of(st.just("all"), slices, indices, wrapped)


@st.composite
def windows(draw, sizes, dims):
    return Window({dim: draw(selectors(sizes[dim])) for dim in draw(st.sets(st.sampled_from(sorted(dims))))})


def cut(array, dims, window):
    """Slice a whole array by name, in NumPy."""
    for axis, dim in enumerate(dims):
        spec = window.get(dim, "all")
        if spec == "all":
            continue
        index = np.arange(*spec) if isinstance(spec, tuple) else np.array(spec, int)
        array = np.take(array, index, axis=axis)
    return array


def carried(variables):
    """Dimensions the data variables carry."""
    return {dim for name, v in variables.items() if name not in v.dims for dim in v.dims}


def equal(one, other):
    return (
        list(one.variables) == list(other.variables)
        and list(one.coords) == list(other.coords)
        and one.times == other.times
        and all(
            same_bits(one[name].data, other[name].data)
            and one[name].dims == other[name].dims
            and repr(one[name].attrs) == repr(other[name].attrs)
            for name in [*one.variables, *one.coords]
        )
    )


@fuzz
@given(data=st.data(), file=contents(), precision=st.sampled_from(["float64", "source"]))
def test_any_file_through_any_window_gives_the_values_written(tmp_path, data, file, precision):
    _, sizes, variables = file
    path = write(tmp_path / "a.nc", *file)
    fields = tuple(name for name, v in variables.items() if name not in v.dims)
    window = data.draw(windows(sizes, carried(variables)))
    provider = Provider(DataSource("s", "netcdf", str(path), fields, reader_kwargs={"precision": precision}))
    whole, part = provider.materialize(), provider.with_window(window).materialize()
    assert part.variable_names() == list(fields)
    expected_coords = [
        n for n, v in variables.items() if n in v.dims and _is_carried(v.dims, fields, variables)
    ]
    assert sorted(part.coord_names()) == sorted(expected_coords)
    for name in [*fields, *expected_coords]:
        expected = variables[name].expected(precision)
        assert same_bits(whole[name].data, expected), name
        assert same_bits(part[name].data, cut(expected, variables[name].dims, window)), name
        assert part[name].data.flags.c_contiguous
        assert repr(part[name].attrs) == repr(whole[name].attrs)


def _is_carried(dims, fields, variables):
    return any(set(dims) <= set(variables[name].dims) for name in fields)


@fuzz
@given(data=st.data(), file=contents())
def test_several_windows_at_once_equal_one_at_a_time(tmp_path, data, file):
    _, sizes, variables = file
    provider = Provider(DataSource("s", "netcdf", str(write(tmp_path / "a.nc", *file))))
    assume(any(name not in v.dims for name, v in variables.items()))
    some = (
        data.draw(st.lists(windows(sizes, carried(variables)), min_size=1, max_size=4))
        if carried(variables)
        else [Window()]
    )
    for window, found in zip(some, provider.sample_windows_at(None, some), strict=True):
        assert equal(found, provider.with_window(window).sample_at(None))


@fuzz
@given(
    data=st.data(),
    file=contents(dims=("time", "lat", "lon"), least=1),
    rank=st.sampled_from([None, 1, 2]),
    cuts=st.lists(st.integers(0, 6), max_size=2),
)
def test_a_series_of_files_gives_every_record_forward_backward_and_refreshed(
    tmp_path, data, file, rank, cuts
):
    classic, sizes, variables = file
    start, step = datetime(2020, 1, 1, tzinfo=UTC), timedelta(hours=1)
    records = sizes["time"]
    per_file = max(records // (len(cuts) + 1), 1)
    count = -(-records // per_file)
    variables = {name: v for name, v in variables.items() if name not in ("time", *v.dims)}
    assume(any("time" in v.dims for v in variables.values()))
    for k in range(count):
        lo, hi = k * per_file, min((k + 1) * per_file, records)
        part = {}
        for name, v in variables.items():
            raw = np.take(v.raw, range(lo, hi), axis=v.dims.index("time")) if "time" in v.dims else v.raw
            chunks = v.chunks and tuple(min(c, max(s, 1)) for c, s in zip(v.chunks, raw.shape, strict=True))
            part[name] = Stored(v.dims, raw, v.attrs, chunks, v.filters, v.endian)
        since = start + lo * step
        stamps = np.arange(hi - lo, dtype="f8")
        part["time"] = Stored(
            ("time",), stamps, {"units": f"hours since {since:%Y-%m-%d %H:%M}"}, None, None, "native"
        )
        write(tmp_path / f"{since:%H}.nc", classic, {**sizes, "time": hi - lo}, part)
    temporal = SourceTemporal(start, step, per_file * step, start + records * step, records_per_sample=rank)
    source = DataSource("s", "netcdf", str(tmp_path / "%H.nc"), tuple(variables), temporal)
    window = (
        data.draw(windows(sizes, carried(variables) - {"time"}))
        if carried(variables) - {"time"}
        else Window()
    )
    provider = Provider(source).with_window(window)
    for k in [*range(records), *reversed(range(records))]:
        t = start + k * step
        sample = provider.sample_at(t)
        assert equal(provider.refresh(t), sample)
        wanted = [k, min(k + 1, records - 1)][: rank or 1]
        for name, v in variables.items():
            expected = cut(v.expected("float64"), v.dims, window)
            if "time" in v.dims:
                axis = v.dims.index("time")
                expected = np.take(expected, wanted if rank == 2 else k, axis=axis)
            assert same_bits(sample[name].data, expected), (name, k)
        assert sample.times == tuple(start + n * step for n in wanted)


@fuzz
@given(file=contents())
def test_xarray_gives_the_same_values_where_the_rules_agree(tmp_path, file):
    """They differ in default fills, and where xarray computes in single precision: packed float32, and
    packing parameters of that width."""
    _, _, variables = file
    path = write(tmp_path / "a.nc", *file)
    found = Provider(DataSource("s", "netcdf", str(path))).materialize()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = xr.load_dataset(path, decode_times=False, engine="netcdf4")
    for name in found.variable_names():
        v = variables[name]
        assert theirs[name].dims == found[name].dims
        packing = [v.attrs[key] for key in ("scale_factor", "add_offset") if key in v.attrs]
        single = bool(packing) and v.raw.dtype.kind == "f" and v.raw.dtype.itemsize <= 4
        if all(p.dtype == np.float64 for p in packing) and not single:
            default = v.raw.dtype.kind == "f" and v.raw == v.raw.dtype.type(9.969209968386869e36)
            values, ours = theirs[name].values.astype("f8"), found[name].data.astype("f8")
            assert ((ours == values) | (np.isnan(ours) & (np.isnan(values) | default))).all(), name


@fuzz
@given(data=st.data(), filters=st.sets(st.sampled_from(["shuffle", "fletcher32", "gzip", "lzf"])))
def test_plain_hdf5_of_any_layout_is_read_exactly(tmp_path, data, filters):
    assume(not {"gzip", "lzf"} <= filters)
    dtype = data.draw(
        st.sampled_from(["f4", "f8", "i1", "u2", "i4", "u8", ">f4", ">i2", ">f8", ">i8", "f2", "?", "c8"])
    )
    shape = tuple(data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=3)))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    raw = rng.integers(0, 100, shape).astype(dtype)
    chunks = tuple(data.draw(st.integers(1, 4)) for _ in shape)
    written = tuple(data.draw(st.integers(0, size)) for size in shape)
    fill = data.draw(st.sampled_from([0, 1, 7]))
    options = {"shuffle": "shuffle" in filters, "fletcher32": "fletcher32" in filters and dtype != "c8"}
    compression = next(iter(filters & {"gzip", "lzf"}), None)
    files.close_idle()
    path = tmp_path / "a.h5"
    path.unlink(missing_ok=True)
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset(
            "v", shape, dtype, chunks=chunks, maxshape=(None,) * len(shape), compression=compression,
            fillvalue=np.array(fill, dtype), **options,
        )  # fmt: skip
        box = tuple(slice(0, n) for n in written)
        if all(written):
            dataset[box] = raw[box]
    expected = np.full(shape, fill, raw.dtype.newbyteorder("="))
    if all(written):
        expected[box] = raw[box]
    found = Provider(
        DataSource("s", "netcdf", str(path), ("v",), reader_kwargs={"precision": "source"})
    ).materialize()["v"]
    expected = expected.view("i1") if dtype == "?" else expected
    assert same_bits(found.data, expected)
