"""Builds a case: writes its inputs into the case's folder, and collects what to do with them.

A case is a function that is given a :class:`Case`, registered by :func:`case`. What it expects it works out
from the numbers it wrote, in Python's own arithmetic.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from .encoding import Json

__all__ = ["Case", "Definition", "case", "definitions"]

Select: TypeAlias = Mapping[str, Any]
Definition: TypeAlias = Callable[["Case"], None]
_registered: dict[str, tuple[str, Definition]] = {}


def case(name: str) -> Callable[[Definition], Definition]:
    """Register the function that defines a case; its docstring says what the case is about."""

    def register(define: Definition) -> Definition:
        assert name not in _registered
        _registered[name] = ((define.__doc__ or "").strip(), define)
        return define

    return register


def definitions() -> dict[str, tuple[str, Definition]]:
    """Give every registered case: what it is about, and what defines it."""
    from .define import prefetch, selection, series, storage, time, values, zarr  # noqa: F401 - they register

    return dict(sorted(_registered.items()))


class Case:
    """One case in the making.

    Parameters
    ----------
    folder : Path
        Where its inputs go.
    name, about : str
        As registered.
    """

    def __init__(self, folder: Path, name: str, about: str) -> None:
        self.folder = folder
        self.name = name
        self.about = about
        self.sources: dict[str, Json] = {}
        self.steps: list[Json] = []

    def source(
        self,
        name: str,
        url: str,
        *variables: str,
        format: str = "netcdf",  # noqa: A002 - the declaration's own word
        options: Mapping[str, Any] | None = None,
        cache: Mapping[str, Any] | None = None,
        **temporal: Any,
    ) -> str:
        """Declare a source, DISCRETE if `temporal` says anything; gives its name."""
        declared: dict[str, Any] = {"format": format, "url": url}
        if variables:
            declared["variables"] = list(variables)
        if options:
            declared["options"] = dict(options)
        if temporal:
            declared["temporal"] = temporal
        if cache:
            declared["cache"] = dict(cache)
        self.sources[name] = declared
        return name

    def _step(self, do: str, **parts: Any) -> None:
        self.steps.append({"do": do, **{key: value for key, value in parts.items() if value is not None}})

    def sample(
        self,
        source: str,
        gives: Json,
        *,
        at: str | None = None,
        select: Select | None = None,
        warns: Sequence[str] = (),
        via: Sequence[str] | None = None,
    ) -> None:
        """Expect a sample."""
        self._step(
            "sample", source=source, at=at, select=select, via=via, warns=list(warns) or None, gives=gives
        )

    def fails(
        self,
        source: str,
        error: str,
        *says: str,
        at: str | None = None,
        select: Select | None = None,
        via: Sequence[str] | None = None,
    ) -> None:
        """Expect an error of that class (or a class of that name among its bases) whose text says this."""
        raises = {"error": error, "says": list(says)}
        self._step("sample", source=source, at=at, select=select, via=via, raises=raises)

    def windows(self, source: str, at: str, windows: Sequence[Select], give: Sequence[Json]) -> None:
        """Expect one sample per Window."""
        self._step("windows", source=source, at=at, windows=list(windows), give=list(give))

    def times(self, source: str, give: Sequence[str]) -> None:
        """Expect these anchors."""
        self._step("times", source=source, give=list(give))

    def orders(
        self,
        members: Sequence[str],
        boundaries: Sequence[str],
        epochs: Sequence[Json],
        *,
        orders: Sequence[str | list[int]],
        depth: Sequence[int] = (2,),
        workers: Sequence[int] = (1,),
        max_bytes: Sequence[int | None] = (None,),
        delays: Sequence[bool] = (False,),
        windows: Sequence[Select] | None = None,
    ) -> None:
        """Expect a group to give these epochs in every order, with every combination of the settings."""
        self._step(
            "orders", members=list(members), boundaries=list(boundaries), windows=windows,
            orders=list(orders), depth=list(depth), workers=list(workers), max_bytes=list(max_bytes),
            delays=list(delays), epochs=list(epochs),
        )  # fmt: skip

    def script(
        self,
        members: Sequence[str],
        calls: Sequence[Json],
        epochs: Sequence[Json],
        *,
        depth: int = 2,
        workers: int = 1,
    ) -> None:
        """Expect a group to answer these calls; a take that raises nothing gives its epoch of `epochs`."""
        self._step(
            "script",
            members=list(members),
            depth=depth,
            workers=workers,
            calls=list(calls),
            epochs=list(epochs),
        )

    def save(self) -> None:
        """Write ``case.json``, one line per step and source."""
        head = {"schema": "earthsci-corpus/case/v1", "name": self.name, "about": self.about}
        lines = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
        sources = [f"  {json.dumps(name)}: {_compact(declared)}" for name, declared in self.sources.items()]
        lines.append(' "sources": {\n' + ",\n".join(sources) + "\n }")
        lines.append(' "steps": [\n' + ",\n".join(f"  {_compact(step)}" for step in self.steps) + "\n ]")
        text = "{\n" + ",\n".join(lines) + "\n}\n"
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "case.json").write_text(text, encoding="utf-8")


def _compact(value: Json) -> str:
    return json.dumps(value, separators=(", ", ": "), allow_nan=False, ensure_ascii=False)
