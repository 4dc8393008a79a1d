"""Groups: the same bits in every order and setting, and errors at the take that needs the sample."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np

from corpus.casebook import Case, case
from corpus.encoding import Json, dataset, field
from corpus.writing import netcdf

from .series import EPOCH
from .values import out

T0 = "2020-01-01T00:00:00"


def _time(hours: int) -> str:
    return f"2020-01-{1 + hours // 24:02d}T{hours % 24:02d}:00:00"


def _write_days(case: Case, name: str, days: int, per_day: int, factor: float) -> None:
    """Write daily files of packed fields; the number in a cell tells record and place."""
    step = 24 // per_day
    for day in range(days):
        first = day * per_day
        raw = np.arange(first * 6, (first + per_day) * 6, dtype="i2").reshape(per_day, 2, 3)
        stored: dict[str, Any] = {
            "time": (
                "time",
                np.arange(0, 24, step, dtype="i4"),
                {"units": f"hours since 2020-01-{day + 1:02d}"},
            ),
            "y": ("y", np.array([1.0, 2.0]), {}),
            "v": ("time y x", raw, {"scale_factor": factor, "_FillValue": np.int16(4)}),
            "s": ("y", np.array([7, 8], "i2"), {}),
        }
        storage = {"v": {"zlib": True, "shuffle": True, "chunksizes": (1, 2, 3)}}
        netcdf(
            case.folder / f"{name}.{day + 1:02d}.nc",
            stored,
            form="NETCDF4",
            storage=storage,
            unlimited=("time",),
        )


def _values(record: int, factor: float) -> Any:
    return np.array([np.nan if n == 4 else n * factor for n in range(record * 6, record * 6 + 6)]).reshape(
        2, 3
    )


def _single(record: int, step: int, factor: float) -> Json:
    return {
        "anchor": _time(record * step),
        "data": [
            dataset(
                [_time(record * step)],
                {"v": field(["y", "x"], _values(record, factor)), "s": field(["y"], out([7, 8], "i2"))},
                {"y": field(["y"], out([1, 2]))},
            )
        ],
    }


def _bracket(record: int, last: int, step: int, factor: float) -> Json:
    two = [record, min(record + 1, last)]
    seconds = field(
        ["time"], out([EPOCH + 3600.0 * step * n for n in two]),
        {"units": "seconds since 1970-01-01", "calendar": "standard"},
    )  # fmt: skip
    return {
        "anchor": _time(record * step),
        "data": [
            dataset(
                [_time(n * step) for n in two],
                {
                    "v": field(["time", "y", "x"], np.stack([_values(n, factor) for n in two])),
                    "s": field(["y"], out([7, 8], "i2")),
                },
                {"y": field(["y"], out([1, 2])), "time": seconds},
            )
        ],
    }


@case("prefetch-equivalence")
def prefetch_equivalence(case: Case) -> None:
    """Take what refresh gives, in every order, setting and order of completion."""
    _write_days(case, "fine", 3, 2, 0.5)
    _write_days(case, "coarse", 3, 1, 0.25)
    declared: dict[str, Any] = {"start": T0, "file_period": "P1D", "end": "2020-01-04"}
    case.source("single", "fine.%d.nc", "v", "s", frequency="PT12H", **declared)
    case.source("bracket", "coarse.%d.nc", "v", "s", frequency="P1D", **declared, records_per_sample=2)
    boundaries = [_time(12 * k) for k in range(6)]
    epochs = [{"single": _single(k, 12, 0.5), "bracket": _bracket(k // 2, 2, 24, 0.25)} for k in range(6)]
    orders: list[str | list[int]] = [
        "forward",
        "reverse",
        [2, 2, 0, 5, 2, 1, 1, 4],
        [0, 1, 0, 1, 5, 4, 3, 4, 5, 0],
    ]
    case.orders(
        ["single", "bracket"], boundaries, epochs, orders=orders, depth=[0, 1, 2, 3], workers=[0, 1, 4],
        max_bytes=[None, 1], delays=[True],
    )  # fmt: skip
    for key in ("single", "bracket"):  # and with each of them alone
        alone = [{key: epoch[key]} for epoch in (epochs if key == "single" else epochs[::2])]
        own = boundaries if key == "single" else boundaries[::2]
        fitting: list[str | list[int]] = (
            orders if key == "single" else ["forward", "reverse", [2, 0, 0, 1, 2, 2, 0]]
        )
        case.orders(
            [key],
            own,
            alone,
            orders=fitting,
            depth=[0, 3],
            workers=[0, 4],
            max_bytes=[None, 1],
            delays=[True],
        )
    windows = [{"dims": {"y": {"slice": [1, 2]}}}, {"dims": {"x": {"indices": [2, 0]}}}]
    cuts = ((slice(1, 2), slice(None)), (slice(None), [2, 0]))
    windowed = []
    for k in range(6):
        several = [
            dataset(
                [_time(12 * k)],
                {"v": field(["y", "x"], _values(k, 0.5)[y][:, x]), "s": field(["y"], out([7, 8], "i2")[y])},
                {"y": field(["y"], out([1, 2])[y])},
            )
            for y, x in cuts
        ]
        windowed.append({"single": {"anchor": _time(12 * k), "data": several}})
    case.orders(
        ["single"], boundaries, windowed, orders=["reverse", [0, 0, 3, 0]], depth=[0, 2], workers=[0, 4],
        delays=[True], windows=windows,
    )  # fmt: skip


@case("prefetch-errors")
def prefetch_errors(case: Case) -> None:
    """Raise an error at the take that needs the sample, and not before; offline too."""
    _write_days(case, "fine", 4, 2, 0.5)
    (case.folder / "fine.03.nc").unlink()
    declared: dict[str, Any] = {"start": T0, "frequency": "PT12H", "file_period": "P1D"}
    case.source("gap", "fine.%d.nc", "v", "s", **declared, end="2020-01-05")
    epochs = [None if k in (4, 5) else {"gap": _single(k, 12, 0.5)} for k in range(8)]

    def take(*ks: int) -> list[Json]:
        return [{"call": "take", "epoch": k} for k in ks]

    def start(order: Any, from_: int | None = None) -> Json:
        return {"call": "start", "order": order, **({} if from_ is None else {"from": from_})}

    missing = [
        {"call": "take", "epoch": k, "raises": {"error": "FileNotFoundError", "says": ["fine.03.nc"]}}
        for k in (4, 5)
    ]
    wrong = {"call": "take", "epoch": 1, "raises": {"error": "ValueError", "says": ["2", "1"]}}
    for depth, workers in ((0, 0), (3, 1), (3, 4)):
        # not before: epochs 0 to 3 come although 4 is within depth; it raises again; start goes on behind it
        case.script(
            ["gap"],
            [start("forward"), *take(0, 1, 2, 3), missing[0], missing[0], start("forward", 6), *take(6, 7)],
            epochs, depth=depth, workers=workers,
        )  # fmt: skip
        case.script(
            ["gap"],
            [start("reverse"), *take(7, 6), missing[1], start("reverse", 3), *take(3, 2, 1, 0)],
            epochs, depth=depth, workers=workers,
        )  # fmt: skip
        # the wrong epoch moves nothing
        case.script(["gap"], [start([2, 0]), wrong, *take(2, 0)], epochs, depth=depth, workers=workers)
    # cancelled and started from there, the sequence is that of an order that went through
    case.source("whole", "fine.%d.nc", "v", "s", **declared, end="2020-01-03")
    whole = [{"whole": _single(k, 12, 0.5)} for k in range(4)]
    for depth, workers in ((0, 0), (1, 1), (3, 4)):
        cancel = {"call": "cancel"}
        calls = [start("forward"), *take(0, 1), cancel, start("forward", 2), *take(2, 3)]
        calls += [start("reverse"), *take(3), cancel, start("reverse", 2), *take(2, 1, 0)]
        case.script(["whole"], calls, whole, depth=depth, workers=workers)

    # offline, with one of two files in the cache: format v1 of spec/cache.md
    base = "https://data.invalid/fine.{:02d}.nc"
    url = base.format(1)
    key = hashlib.sha256(url.encode()).hexdigest()
    content = (case.folder / "fine.01.nc").read_bytes()
    blob = case.folder / "cache/v1/blobs" / key[:2] / f"{key}.nc"
    blob.parent.mkdir(parents=True)
    blob.write_bytes(content)
    manifest = {
        "schema": "earthsciio/manifest/v1", "url": url, "etag": None, "last_modified": None,
        "sha256_content": hashlib.sha256(content).hexdigest(), "bytes": len(content),
        "fetched_at": "2020-02-01T00:00:00Z", "source_loader": None, "auth_realm": None,
    }  # fmt: skip
    meta = case.folder / "cache/v1/meta" / f"{key}.json"
    meta.parent.mkdir(parents=True)
    meta.write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    case.source("offline", "https://data.invalid/fine.%d.nc", "v", "s", **declared, end="2020-01-03",
                cache={"root": "cache", "offline": True})  # fmt: skip
    second = base.format(2)
    says = [second, hashlib.sha256(second.encode()).hexdigest()]
    cold = {"call": "take", "epoch": 2, "raises": {"error": "CacheMiss", "says": says}}
    offline = [{"offline": _single(k, 12, 0.5)} if k < 2 else None for k in range(4)]
    for depth, workers in ((0, 0), (3, 4)):
        case.script(
            ["offline"], [start("forward"), *take(0, 1), cold, cold], offline, depth=depth, workers=workers
        )
    case.fails("offline", "CacheMiss", second, at="2020-01-02T00:00:00")
