"""The public names and behaviours that programs written for the published earthsciio rely on."""

import hashlib
import inspect
from datetime import UTC, datetime

import netCDF4
import numpy as np
import pytest

import earthsciio as e

CLASSES = [
    "Provider", "DataSource", "SourceTemporal", "NativeField", "NativeDataset", "Cache", "CacheEntry",
    "Manifest", "Registry", "NetCDFReader", "ZarrReader", "CSVReader", "StaticHeaderAuth", "Window",
]  # fmt: skip
ERRORS = {
    "EarthSciIOError": Exception,
    "BackendNotRegistered": LookupError,
    "Unsupported": NotImplementedError,
    "UnknownReaderOption": ValueError,
    "CacheMiss": e.EarthSciIOError,
    "IntegrityError": e.EarthSciIOError,
    "TransportError": e.EarthSciIOError,
    "FetchError": e.EarthSciIOError,
    "OfflineError": e.EarthSciIOError,
    "AuthError": e.EarthSciIOError,
}
FUNCTIONS = [
    "cache_key", "range_keyed_url", "sha256_bytes", "sha256_file", "supports_selection",
    "reader_option_names", "to_xarray",
]  # fmt: skip
REGISTRIES = ["transport_registry", "format_registry", "store_registry"]


@pytest.fixture
def path(tmp_path):
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        file.createDimension("time", 3)
        file.createDimension("x", 2)
        time = file.createVariable("time", "i4", ("time",))
        time.units = "hours since 2020-01-01"
        time[:] = [0, 1, 2]
        file.createVariable("x", "f8", ("x",))[:] = [10, 20]
        v = file.createVariable("v", "f4", ("time", "x"))
        v.units = "K"
        v[:] = [[0, 1], [2, 3], [4, 5]]
    return tmp_path / "a.nc"


@pytest.fixture
def source(path):
    temporal = e.SourceTemporal(
        datetime(2020, 1, 1, tzinfo=UTC), "PT1H", None, datetime(2020, 1, 1, 3, tzinfo=UTC)
    )
    return e.DataSource("s", "netcdf", str(path), ("v",), temporal)


def hour(k):
    return datetime(2020, 1, 1, k, tzinfo=UTC)


def parameters(function):
    return {
        name: p.default
        for name, p in inspect.signature(function).parameters.items()
        if name != "self" and p.kind is not p.VAR_KEYWORD
    }


EMPTY = inspect.Parameter.empty


def test_every_public_name_is_there_and_documented():
    for name in [*CLASSES, *ERRORS, *FUNCTIONS, *REGISTRIES]:
        assert name in e.__all__
    for name in [*CLASSES, *ERRORS, *FUNCTIONS]:
        assert inspect.getdoc(getattr(e, name)), name
    for name in e.__all__:
        assert hasattr(e, name)


@pytest.mark.parametrize(("name", "builtin"), ERRORS.items())
def test_public_errors_are_also_the_builtins_they_were(name, builtin):
    assert issubclass(getattr(e, name), builtin)
    assert issubclass(getattr(e, name), e.EarthSciIOError)


def test_provider_has_the_signature_programs_call():
    assert list(parameters(e.Provider))[:4] == ["loader", "cache", "window", "formats"]
    signature = inspect.signature(e.Provider)
    assert signature.parameters["window"].default is None
    assert signature.parameters["formats"].kind is inspect.Parameter.KEYWORD_ONLY
    assert list(parameters(e.Provider.refresh)) == ["t", "select"]
    for name in ("materialize", "refresh_times", "prefetch", "array_shape"):
        assert callable(getattr(e.Provider, name))
    for name in ("is_const", "coords", "supports_selection", "store_backed"):
        assert isinstance(inspect.getattr_static(e.Provider, name), property)


def test_declarations_have_the_signatures_programs_call():
    expected = {
        "name": EMPTY, "format": EMPTY, "url": EMPTY, "variables": (), "temporal": None, "mirrors": (),
        "auth_realm": None,
    }  # fmt: skip
    found = parameters(e.DataSource)
    assert list(found) == [*expected, "reader_kwargs"]
    assert {name: found[name] for name in expected} == expected
    assert e.DataSource("s", "netcdf", "a").reader_kwargs == {}
    expected = {"start": EMPTY, "frequency": EMPTY, "file_period": None, "end": None, "time_dim": "time"}
    expected["records_per_sample"] = None
    found = parameters(e.SourceTemporal)
    assert list(found)[: len(expected)] == list(expected)
    assert {name: found[name] for name in expected} == expected


def test_the_cache_has_the_signatures_programs_call():
    found = parameters(e.Cache)
    expected = {
        "store": None,
        "root": None,
        "store_name": "local",
        "offline": None,
        "auth": None,
        "verify": False,
    }
    assert {name: found[name] for name in expected} == expected
    assert next(iter(found)) == "store"
    found = parameters(e.Cache.fetch)
    expected = {
        "source_loader": None,
        "auth_realm": None,
        "temporal": None,
        "expected_checksum": None,
        "mirrors": (),
    }
    assert next(iter(found)) == "resolved_url"
    assert {name: found[name] for name in expected} == expected


def test_a_source_resolves_literals_templates_and_callables():
    t = datetime(2020, 2, 3, tzinfo=UTC)
    assert e.DataSource("s", "netcdf", "/d/a.nc").resolve_url() == "/d/a.nc"
    assert e.DataSource("s", "netcdf", "/d/%Y%m%d.nc").resolve_url(t) == "/d/20200203.nc"
    assert e.DataSource("s", "netcdf", lambda t: f"/d/{t.year}.nc").resolve_url(t) == "/d/2020.nc"
    assert e.DataSource("s", "netcdf", "a").is_const
    assert not e.DataSource("s", "netcdf", "a", temporal=e.SourceTemporal(t, "P1D")).is_const


def test_declarations_are_frozen(source):
    with pytest.raises(AttributeError):
        source.name = "other"
    with pytest.raises(AttributeError):
        source.temporal.end = None


def test_a_field_has_data_dims_attrs_shape_and_dtype():
    field = e.NativeField(np.zeros((2, 3), "f4"), ("y", "x"), {"units": "K"})
    assert (field.shape, field.dtype, field.dims, field.attrs) == (
        (2, 3),
        np.float32,
        ("y", "x"),
        {"units": "K"},
    )
    with pytest.raises(ValueError, match="axes"):
        e.NativeField(np.zeros(2), ("y", "x"), {})


def test_a_dataset_gives_fields_and_coordinates_by_name():
    field, axis = e.NativeField(np.zeros(2), ("x",), {}), e.NativeField(np.arange(2), ("x",), {})
    dataset = e.NativeDataset({"v": field}, {"x": axis})
    assert dataset["v"] is field
    assert dataset["x"] is axis
    assert "v" in dataset
    assert "x" in dataset
    assert "w" not in dataset
    assert dataset.variable_names() == ["v"]
    assert dataset.coord_names() == ["x"]
    with pytest.raises(KeyError):
        dataset["w"]


def test_refresh_materialize_times_and_shapes(source, path):
    provider = e.Provider(source, e.Cache(root=path.parent / "cache"))
    assert provider.refresh_times() == [hour(k) for k in range(3)]
    assert provider.materialize()["v"].data.tolist() == [0, 1]
    assert provider.refresh(hour(2))["v"].data.tolist() == [4, 5]
    assert provider.array_shape("v") == (2,)
    assert provider.coords["x"].data.tolist() == [10, 20]
    assert not provider.is_const
    assert provider.supports_selection
    assert not provider.store_backed
    assert provider.refresh(hour(1), select={"dims": {"x": {"indices": [1]}}})["v"].data.tolist() == [3]
    assert provider.refresh(hour(1), {"axes": ["all", {"slice": [0, 1]}]})["v"].data.tolist() == [2]


def test_a_time_range_limits_refresh_times(source):
    provider = e.Provider(source, None, (hour(1), hour(3)))
    assert provider.refresh_times() == [hour(1), hour(2)]
    assert provider.materialize()["v"].data.tolist() == [2, 3]


def test_times_outside_are_value_and_index_errors(source):
    provider = e.Provider(source)
    with pytest.raises(ValueError, match="2019"):
        provider.refresh(datetime(2019, 12, 31, tzinfo=UTC))
    with pytest.raises(IndexError):
        provider.refresh(hour(3))


def test_a_constant_has_no_refresh_times_and_refresh_returns_it(path):
    provider = e.Provider(e.DataSource("c", "netcdf", str(path)))
    assert provider.is_const
    assert provider.refresh_times() == []
    assert provider.refresh(hour(0))["v"].data.tolist() == [[0, 1], [2, 3], [4, 5]]
    assert provider.materialize().variable_names() == ["v"]


def test_an_unknown_format_or_option_fails_at_construction():
    with pytest.raises(e.BackendNotRegistered):
        e.Provider(e.DataSource("s", "grib7", "a"))
    with pytest.raises(e.UnknownReaderOption):
        e.Provider(e.DataSource("s", "netcdf", "a", reader_kwargs={"colour": "red"}))


def test_readers_are_registered_and_tell_their_options():
    for name, reader in (("netcdf", e.NetCDFReader), ("zarr", e.ZarrReader), ("csv", e.CSVReader)):
        assert name in e.format_registry
        assert isinstance(e.format_registry.create(name), reader)
        assert "variables" not in e.reader_option_names(reader)
    assert {"precision", "mask_valid_range", "group", "sort_time"} <= e.reader_option_names(e.NetCDFReader)
    assert e.supports_selection(e.NetCDFReader)
    assert e.supports_selection(e.NetCDFReader())


def test_a_format_of_ones_own_is_used_where_it_is_given(path):
    class Shouting(e.NetCDFReader):
        """Opens whatever it is asked for as one file."""

        def open(self, _):
            return super().open(str(path))

        def identity(self, _):
            return super().identity(str(path))

    formats = e.Registry("format")
    formats.register("shouting", Shouting)
    provider = e.Provider(e.DataSource("s", "shouting", "anything", ("v",)), formats=formats)
    assert provider.materialize()["v"].data.tolist() == [[0, 1], [2, 3], [4, 5]]
    with pytest.raises(e.BackendNotRegistered):
        e.Provider(e.DataSource("s", "shouting", "anything", ("v",)))


def test_registries_register_create_and_list():
    registry = e.Registry("shape")
    registry.register("pair", lambda a, b=0: (a, b))
    assert registry.create("pair", 1, b=2) == (1, 2)
    assert list(registry) == ["pair"]
    assert registry.names() == ("pair",)
    with pytest.raises(LookupError, match="pair"):
        registry.create("pear")
    for name in REGISTRIES:
        assert isinstance(getattr(e, name), e.Registry)
    assert "local" in e.store_registry
    assert "file" in e.transport_registry


def test_keys_and_checksums_are_plain_sha_256(tmp_path):
    url = "https://example.org/ä b.nc?x=1"
    assert e.cache_key(url) == hashlib.sha256(url.encode()).hexdigest()
    assert e.range_keyed_url("https://h/a", 0, 99) == "https://h/a#bytes=0-99"
    assert e.sha256_bytes(b"abc") == hashlib.sha256(b"abc").hexdigest()
    (tmp_path / "f").write_bytes(b"abc")
    assert e.sha256_file(tmp_path / "f") == hashlib.sha256(b"abc").hexdigest()


def test_fetch_returns_an_entry_with_key_path_manifest_and_status(tmp_path):
    (tmp_path / "f.nc").write_bytes(b"abc")
    url = (tmp_path / "f.nc").as_uri()
    cache = e.Cache(root=tmp_path / "cache")
    entry = cache.fetch(url, source_loader="s")
    assert isinstance(entry, e.CacheEntry)
    assert (entry.key, entry.status) == (e.cache_key(url), "downloaded")
    assert entry.path.read_bytes() == b"abc"
    assert isinstance(entry.manifest, e.Manifest)
    assert (entry.manifest.url, entry.manifest.bytes, entry.manifest.source_loader) == (url, 3, "s")
    offline = e.Cache(root=tmp_path / "cache", offline=True)
    assert offline.fetch(url).status == "hit"
    with pytest.raises(e.CacheMiss) as caught:
        offline.fetch(url + "x")
    assert isinstance(caught.value, e.OfflineError)
    with pytest.raises(e.IntegrityError):
        cache.fetch(url, expected_checksum="0" * 64)


def test_header_auth_is_made_from_a_token_or_a_header():
    assert e.StaticHeaderAuth.bearer("token") is not None
    assert e.StaticHeaderAuth.header("X-Key", "secret") is not None
