"""Which part of a field a reader wants: Windows, selectors, and how they meet a file's dimensions.

A :class:`Window` names dimensions and gives each a selector; the wire forms ``{"dims": {...}}`` and
``{"axes": [...]}`` parse to the same thing. Building one checks its form only. :func:`resolve` meets the
dimensions of a file, checks every bound before any data is read, and yields one :class:`Span` or
:class:`Points` per axis, which is all that the planner below ever sees. Indices are 0-based, never
negative, and nothing is ever clamped or wrapped.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from .errors import SelectionError, SelectionRangeError

__all__ = ["ALL", "AxesSelection", "Points", "Selector", "Span", "Window", "parse_selection", "resolve"]

ALL = "all"
#: What no index, bound or step reaches: so that lengths and sums of them fit int64.
_TOO_LARGE = 1 << 62
#: Indices that are ever written out one by one.
_MOST_LISTED = 1 << 31
#: How a selection may be given: a Window, or the wire dict.
SelectionLike: TypeAlias = "Window | Mapping[str, Any]"


@dataclass(frozen=True, slots=True)
class Span:
    """Every `step`-th index of ``[start, stop)``."""

    start: int
    stop: int
    step: int = 1

    def __post_init__(self) -> None:
        if self.stop < self.start:
            raise SelectionError(f"slice [{self.start}, {self.stop}) stops before it starts")
        if self.step < 1:
            raise SelectionError(f"slice step {self.step} is below 1")

    def __len__(self) -> int:
        return len(range(self.start, self.stop, self.step))

    @property
    def first(self) -> int:
        """The first selected index, of a span that is not empty."""
        return self.start

    def indices(self) -> npt.NDArray[np.int64]:
        """Give the selected indices, ascending."""
        if len(self) > _MOST_LISTED:
            raise SelectionError(f"the {len(self)} indices of {self.wire()} are more than can be listed")
        return np.arange(self.start, self.stop, self.step, dtype=np.int64)

    def check(self, dim: str, size: int) -> None:
        """Raise SelectionRangeError unless the span lies inside ``[0, size]``."""
        if self.start < 0 or self.start > size or self.stop > size:
            raise SelectionRangeError("slice out of range", dim=dim, length=size, selector=self.wire())

    def wire(self) -> dict[str, list[int]]:
        """Give the wire form."""
        return {"slice": [self.start, self.stop] if self.step == 1 else [self.start, self.stop, self.step]}


class Points:
    """Indices in the order wanted; repeats are kept.

    Parameters
    ----------
    values : sequence of int
        The indices. Kept as a read-only int64 array of shape ``(n,)``.
    """

    __slots__ = ("_hash", "values")

    def __init__(self, values: Iterable[int] | npt.NDArray[Any]) -> None:
        if isinstance(values, range) and len(values[: _MOST_LISTED + 1]) > _MOST_LISTED:
            raise SelectionError("more indices than can be listed")
        array = np.array([_index(v) for v in values] if not isinstance(values, np.ndarray) else values)
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            raise SelectionError(f"indices must be a flat list of integers, not {values!r}")
        if array.size:
            _index(array.min())
            _index(array.max())
        self.values: npt.NDArray[np.int64] = array.astype(np.int64)
        self.values.flags.writeable = False
        self._hash = hash(self.values.tobytes())

    def __len__(self) -> int:
        return len(self.values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Points) and np.array_equal(self.values, other.values)

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"Points({self.values.tolist()})"

    @property
    def first(self) -> int:
        """The first selected index, if there is one."""
        return int(self.values[0])

    def indices(self) -> npt.NDArray[np.int64]:
        """Give the selected indices, in order."""
        return self.values

    def check(self, dim: str, size: int) -> None:
        """Raise SelectionRangeError unless every index is in ``[0, size)``."""
        bad = np.flatnonzero((self.values < 0) | (self.values >= size))
        if bad.size:
            raise SelectionRangeError(
                f"index {int(self.values[bad[0]])} (position {int(bad[0])} of the selector) out of range",
                dim=dim,
                length=size,
                selector=_shorten(self.values.tolist()),
            )

    def wire(self) -> dict[str, list[int]]:
        """Give the wire form."""
        return {"indices": self.values.tolist()}


#: A parsed selector; ``None`` stands for "all".
Selector: TypeAlias = Span | Points


def _index(value: object) -> int:
    if isinstance(value, (bool, np.bool_)):
        raise SelectionError(f"{value!r} is not an index")
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise SelectionError(f"{value!r} is not an integer index") from None
    if abs(number) > _TOO_LARGE:
        raise SelectionError("no dimension reaches so far")
    return number


def _shorten(values: list[Any]) -> str:
    return (
        str(values)
        if len(values) <= 12
        else f"[{', '.join(map(str, values[:8]))}, ... {len(values)} indices]"
    )


def _parse_selector(dim: str, spec: Any) -> Selector | None:
    """Parse one selector in the Python or the wire spelling; None for "all". Errors name the dimension."""
    try:
        return _read_selector(spec)
    except SelectionError as error:
        given = _shorten(spec) if isinstance(spec, list) else repr(spec)
        why = f": {error.args[0]}" if error.args[0] else ""
        raise SelectionError(f"can't read the selector {given} of {dim!r}{why}", hint=error.hint) from None


def _read_selector(spec: Any) -> Selector | None:
    match spec:
        case str() if spec == ALL:
            return None
        case Span() | Points():
            return spec
        case tuple():
            return _read_slice(spec)
        case list() | np.ndarray() | range():
            return Points(spec)
        case {"slice": bounds} if len(spec) == 1:
            return _read_slice(bounds)
        case {"indices": values} if len(spec) == 1:
            if not isinstance(values, (Sequence, np.ndarray)) or isinstance(values, str):
                raise SelectionError("indices must be a list")
            return Points(values)
        case {"slice": _, "indices": _}:
            raise SelectionError("a selector is a slice or indices, not both")
    raise SelectionError(
        "",
        hint='Use "all", (start, stop[, step]) or {"slice": [...]}, [i, ...] or {"indices": [...]}',
    )


def _read_slice(bounds: Any) -> Span:
    if not isinstance(bounds, Sequence) or isinstance(bounds, str) or len(bounds) not in (2, 3):
        raise SelectionError("a slice is [start, stop] or [start, stop, step]")
    return Span(*(_index(bound) for bound in bounds))


def _spelled(selector: Selector | None) -> Any:
    """Give a selector in the Python spelling."""
    match selector:
        case Span() as span:
            return (span.start, span.stop) if span.step == 1 else (span.start, span.stop, span.step)
        case Points() as points:
            return points.values.tolist()
    return ALL


class Window(Mapping[str, Any]):
    """Per-dimension selectors by name; unnamed dimensions are whole.

    Frozen and hashable. As a mapping it gives each named dimension's selector in the Python spelling.

    Parameters
    ----------
    dims : mapping of str to selector
        ``"all"``, a tuple ``(start, stop[, step])`` (half-open), a list of indices (order and repeats kept),
        or the wire forms ``{"slice": [...]}`` and ``{"indices": [...]}``.

    Raises
    ------
    SelectionError
        If a selector can't be read. Bounds are checked later, against each file.

    Examples
    --------
    >>> w = Window({"lat": (120, 218), "lon": [1150, 1151, 0, 1]})
    >>> w.shape({"lev": 72, "lat": 721, "lon": 1152})
    (72, 98, 4)
    >>> w.origin
    {'lat': 120, 'lon': 1150}
    """

    __slots__ = ("_dims", "_hash")

    def __init__(self, dims: Mapping[str, Any] | None = None) -> None:
        if dims is not None and not isinstance(dims, Mapping):
            raise SelectionError(f"a Window maps dimension names to selectors, not {dims!r}")
        parsed: dict[str, Selector | None] = {}
        for name, spec in (dims or {}).items():
            if not isinstance(name, str):
                raise SelectionError(f"dimension name {name!r} is not a string")
            parsed[name] = _parse_selector(name, spec)
        self._dims = parsed
        self._hash = hash(frozenset(parsed.items()))

    def selector(self, dim: str) -> Selector | None:
        """Give the selector of a dimension; None for all of it."""
        return self._dims.get(dim)

    def __getitem__(self, dim: str) -> Any:
        return _spelled(self._dims[dim])

    def __iter__(self) -> Iterator[str]:
        return iter(self._dims)

    def __len__(self) -> int:
        return len(self._dims)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Window) and self._dims == other._dims

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        def spell(dim: str) -> str:
            value = self[dim]
            return _shorten(value) if isinstance(value, list) else repr(value)

        return f"Window({{{', '.join(f'{dim!r}: {spell(dim)}' for dim in self)}}})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Window, ({dim: ALL if sel is None else sel.wire() for dim, sel in self._dims.items()},)

    def wire(self) -> dict[str, dict[str, Any]]:
        """Give the wire form ``{"dims": {...}}``."""
        return {"dims": {dim: ALL if sel is None else sel.wire() for dim, sel in self._dims.items()}}

    def shape(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Give the selected length of each dimension of `sizes`, in its order.

        Raises
        ------
        SelectionRangeError
            If a selector lies outside its dimension.
        """
        return tuple(self._checked_length(dim, size) for dim, size in sizes.items())

    def _checked_length(self, dim: str, size: int) -> int:
        selector = self._dims.get(dim)
        if selector is None:
            return size
        selector.check(dim, size)
        return len(selector)

    @property
    def origin(self) -> dict[str, int]:
        """First index of each named dimension (0 for "all" and for empty selectors): the rebasing offset."""
        firsts = {}
        for dim, selector in self._dims.items():
            firsts[dim] = 0 if selector is None or len(selector) == 0 else selector.first
        return firsts

    def union(self, other: Window) -> Window:
        """Give the smallest Window that holds every index of both, per dimension, ascending.

        A dimension that either leaves whole is whole; two selectors that leave a gap stay two runs of
        indices, never their hull.
        """
        merged: dict[str, Any] = {}
        for dim in {**self._dims, **other._dims}:
            mine, theirs = self._dims.get(dim), other._dims.get(dim)
            if mine is not None and theirs is not None:
                merged[dim] = _united(mine, theirs)
            else:
                merged[dim] = ALL
        return Window(merged)

    def grow(
        self,
        cells: Mapping[str, int | tuple[int, int]],
        *,
        sizes: Mapping[str, int],
        periodic: Iterable[str] = (),
    ) -> Window:
        """Give the Window with a halo of `cells` on either side of the named dimensions.

        Parameters
        ----------
        cells : mapping of str to int or (int, int)
            Cells to add before and after the first and last selected index.
        sizes : mapping of str to int
            Length of each dimension named in `cells`.
        periodic : iterable of str
            Dimensions that wrap: there the halo continues on the other side, as indices. Elsewhere it stops
            at the edge of the dimension.

        Raises
        ------
        SelectionError
            For a stepped or empty selector, or a scattered index list, whose neighbours are not defined.
        """
        wraps = set(periodic)
        grown: dict[str, Any] = {dim: ALL if sel is None else sel for dim, sel in self._dims.items()}
        for dim, amount in cells.items():
            if dim not in sizes:
                raise SelectionError(f"can't grow {dim!r} without its size", hint="Name it in sizes")
            sides = (amount, amount) if isinstance(amount, int) else amount
            if min(sides) < 0:
                raise SelectionError(f"can't grow {dim!r} by {amount}")
            grown[dim] = _grown(dim, self._dims.get(dim), sides, sizes[dim], dim in wraps)
        return Window(grown)

    @classmethod
    def from_bounds(cls, coords: Mapping[str, Any], **bounds: tuple[float, float]) -> Window:
        """Select by coordinate values; see :func:`earthsciio.bounds.window_from_bounds`."""
        from .bounds import window_from_bounds

        return window_from_bounds(coords, bounds)


def _united(one: Selector, other: Selector) -> Selector:
    """Give every index of both, ascending; runs that meet need not be listed."""
    if isinstance(one, Span) and isinstance(other, Span) and len(one) and len(other):
        low, high = min(one.start, other.start), max(one.stop, other.stop)
        if one.step == other.step == 1 and high - low <= len(one) + len(other):
            return Span(low, high)
    return _as_selector(np.union1d(one.indices(), other.indices()))


def _as_selector(indices: npt.NDArray[Any]) -> Selector:
    """Give a Span where the indices are a step-1 run, else Points."""
    if len(indices) == 0:
        return Span(0, 0)
    if np.all(np.diff(indices) == 1):
        return Span(int(indices[0]), int(indices[-1]) + 1)
    return Points(indices)


def _grown(
    dim: str, selector: Selector | None, amount: tuple[int, int], size: int, wraps: bool
) -> Selector | str:
    before, after = amount
    if selector is None and not wraps:
        return ALL
    if selector is not None:
        selector.check(dim, size)
    indices = np.arange(size) if selector is None else selector.indices()
    steps = np.diff(indices)
    if len(indices) == 0 or not np.all((steps == 1) | (wraps & (steps == 1 - size))):
        raise SelectionError(
            f"can't grow {_spelled(selector)!r} of {dim!r}: not a run of neighbouring cells", dim=dim,
            hint="Only a step-1 run of indices has a cell before it and one after it",
        )  # fmt: skip
    first, last = int(indices[0]), int(indices[-1])
    if not wraps:
        return Span(max(first - before, 0), min(last + after, size - 1) + 1)
    halo_low = np.arange(first - before, first) % size
    halo_high = np.arange(last + 1, last + 1 + after) % size
    return _as_selector(np.concatenate([halo_low, indices, halo_high]))


@dataclass(frozen=True, slots=True)
class AxesSelection:
    """The positional form: one selector per file-order dimension, for fields of that rank."""

    axes: tuple[Selector | None, ...]

    def wire(self) -> dict[str, list[Any]]:
        """Give the wire form ``{"axes": [...]}``."""
        return {"axes": [ALL if selector is None else selector.wire() for selector in self.axes]}


def parse_selection(selection: SelectionLike | AxesSelection) -> Window | AxesSelection:
    """Parse a Window or a wire dict; checks the form only.

    Raises
    ------
    SelectionError
        If it has neither or both of ``axes`` and ``dims``, other keys, or a selector that can't be read.
    """
    if isinstance(selection, (Window, AxesSelection)):
        return selection
    if not isinstance(selection, Mapping) or set(selection) not in ({"axes"}, {"dims"}):
        raise SelectionError(
            f"a selection has exactly one of the keys 'axes' and 'dims', not {selection!r}",
            hint='{"dims": {}} selects everything',
        )
    if "dims" in selection:
        if not isinstance(selection["dims"], Mapping):
            raise SelectionError(f"'dims' maps names to selectors, not {selection['dims']!r}")
        return Window(selection["dims"])
    axes = selection["axes"]
    if not isinstance(axes, Sequence) or isinstance(axes, str):
        raise SelectionError(f"'axes' is a list of selectors, not {axes!r}")
    return AxesSelection(tuple(_parse_selector(f"axis {i}", spec) for i, spec in enumerate(axes)))


def resolve(
    selection: Window | AxesSelection | None,
    fields: Mapping[str, tuple[str, ...]],
    coords: Mapping[str, tuple[str, ...]],
    sizes: Mapping[str, int],
    *,
    time_dim: str | None = None,
    file: str | None = None,
) -> dict[str, tuple[Span | Points, ...]]:
    """Meet a file: one bounds-checked selector per axis of every variable.

    Parameters
    ----------
    selection : Window, AxesSelection or None
        What is wanted; None for everything.
    fields, coords : mapping of str to tuple of str
        Dimensions of each variable to be delivered, in file order.
    sizes : mapping of str to int
        Length of every dimension.
    time_dim : str, optional
        The dimension that holds records, which no selection may name.
    file : str, optional
        For messages.

    Returns
    -------
    dict of str to tuple
        For every field and coordinate, a selector per axis.

    Raises
    ------
    SelectionError
        Naming the time dimension, a dimension that no field carries, or (positional form) a rank that no
        field has, or two selectors for one dimension.
    SelectionRangeError
        A selector outside its dimension.
    """
    field_dims: dict[str, Selector | None] = {}
    windowed = set(fields) | set(coords)
    if isinstance(selection, AxesSelection):
        field_dims = _axes_to_dims(selection, fields, file)
        windowed = {name for name, dims in fields.items() if len(dims) == len(selection.axes)} | set(coords)
    elif selection is not None:
        field_dims = {dim: selection.selector(dim) for dim in selection}
        carried = dict.fromkeys(dim for dims in fields.values() for dim in dims)
        for dim in field_dims:
            if dim != time_dim and dim not in carried:
                raise SelectionError(
                    f"no field carries the dimension {dim!r}",
                    file=file,
                    hint=f"There are {[d for d in carried if d != time_dim]}",
                )
    if time_dim is not None and (isinstance(selection, Window) and time_dim in field_dims):
        raise SelectionError(
            f"the time dimension {time_dim!r} can't be selected",
            file=file,
            hint="Records are chosen by the time asked for",
        )
    if time_dim is not None and field_dims.get(time_dim) is not None:
        raise SelectionError(f"the selector of the time dimension {time_dim!r} must be 'all'", file=file)
    for dim, selector in field_dims.items():
        if selector is not None:
            try:
                selector.check(dim, sizes[dim])
            except SelectionRangeError as error:
                raise SelectionRangeError(
                    "selector out of range",
                    file=file,
                    dim=dim,
                    length=sizes[dim],
                    selector=_shorten_selector(selector),
                ) from error

    def axes(name: str, dims: tuple[str, ...]) -> tuple[Span | Points, ...]:
        chosen = field_dims if name in windowed else {}
        selectors = (chosen.get(dim) for dim in dims)  # an empty selector is false, and still a selector
        return tuple(
            Span(0, sizes[dim]) if selector is None else selector
            for dim, selector in zip(dims, selectors, strict=True)
        )

    return {name: axes(name, dims) for name, dims in {**fields, **coords}.items()}


def _shorten_selector(selector: Selector) -> object:
    return selector.wire() if isinstance(selector, Span) else _shorten(selector.values.tolist())


def _axes_to_dims(
    selection: AxesSelection, fields: Mapping[str, tuple[str, ...]], file: str | None
) -> dict[str, Selector | None]:
    """Translate positions to names through every field of that rank."""
    ranks = sorted({len(dims) for dims in fields.values()})
    if len(selection.axes) not in ranks:
        raise SelectionError(
            f"a selection of {len(selection.axes)} axes matches no field",
            file=file,
            hint=f"Fields have {ranks} dimensions",
        )
    named: dict[str, Selector | None] = {}
    for name, dims in fields.items():
        if len(dims) != len(selection.axes):
            continue
        for dim, selector in zip(dims, selection.axes, strict=True):
            if named.setdefault(dim, selector) != selector:
                raise SelectionError(f"two selectors for the dimension {dim!r}", file=file, variable=name)
    return named
