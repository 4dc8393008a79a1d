"""Forcing I/O: declare sources, cache their files, decode the windows a rank needs, ahead of the model.

The public names, nothing else. Importing this package compiles nothing and loads no file-format library:
h5py, zarr and the kernels are imported by the first read that needs them.
"""

from typing import TYPE_CHECKING

from .cache import (
    Cache,
    CacheEntry,
    Manifest,
    StaticHeaderAuth,
    cache_key,
    range_keyed_url,
    sha256_bytes,
    sha256_file,
    store_registry,
    transport_registry,
)
from .decode import set_decode_threads
from .errors import (
    AuthError,
    BackendNotRegistered,
    CacheMiss,
    Cancelled,
    DeclarationError,
    DecodeError,
    EarthSciIOError,
    EarthSciIOWarning,
    FetchError,
    FileFormatError,
    GroupStateError,
    IntegrityError,
    MissingFile,
    OfflineError,
    OrderError,
    RecordNotFound,
    SelectionError,
    SelectionRangeError,
    TimeAxisError,
    TimeBeforeStart,
    TimePastEnd,
    TransportError,
    UnknownReaderOption,
    Unsupported,
    VariableNotFound,
)
from .fields import NativeDataset, NativeField, to_xarray
from .formats import (
    CSVReader,
    NetCDFReader,
    ZarrReader,
    format_registry,
    reader_option_names,
    supports_selection,
)
from .provider import Provider
from .registry import Registry
from .selection import Window
from .source import DataSource, SourceTemporal, StandIn

if TYPE_CHECKING:
    from .declare import Case, dump_sources, load_case, load_sources
    from .prefetch import EpochSample, Order, PrefetchGroup, Sample, revolve

__all__ = [
    "AuthError",
    "BackendNotRegistered",
    "CSVReader",
    "Cache",
    "CacheEntry",
    "CacheMiss",
    "Cancelled",
    "Case",
    "DataSource",
    "DeclarationError",
    "DecodeError",
    "EarthSciIOError",
    "EarthSciIOWarning",
    "EpochSample",
    "FetchError",
    "FileFormatError",
    "GroupStateError",
    "IntegrityError",
    "Manifest",
    "MissingFile",
    "NativeDataset",
    "NativeField",
    "NetCDFReader",
    "OfflineError",
    "Order",
    "OrderError",
    "PrefetchGroup",
    "Provider",
    "RecordNotFound",
    "Registry",
    "Sample",
    "SelectionError",
    "SelectionRangeError",
    "SourceTemporal",
    "StandIn",
    "StaticHeaderAuth",
    "TimeAxisError",
    "TimeBeforeStart",
    "TimePastEnd",
    "TransportError",
    "UnknownReaderOption",
    "Unsupported",
    "VariableNotFound",
    "Window",
    "ZarrReader",
    "cache_key",
    "dump_sources",
    "format_registry",
    "load_case",
    "load_sources",
    "range_keyed_url",
    "reader_option_names",
    "revolve",
    "set_decode_threads",
    "sha256_bytes",
    "sha256_file",
    "store_registry",
    "supports_selection",
    "to_xarray",
    "transport_registry",
]

#: What a program that only reads does not use is imported when it is asked for.
_LATER = {
    **dict.fromkeys(("Case", "dump_sources", "load_case", "load_sources"), "declare"),
    **dict.fromkeys(("EpochSample", "Order", "PrefetchGroup", "Sample", "revolve"), "prefetch"),
}


def __getattr__(name: str) -> object:
    if name in _LATER:
        from importlib import import_module

        return getattr(import_module(f".{_LATER[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
