"""Plain data against a type: whether a YAML file has the shape its schema asks for, and if not, where.

``msgspec`` knows the types; its own messages don't say which entry of a mapping is wrong, nor which key was
meant, so the walk is done here, and ``msgspec.convert`` then builds what is known to fit.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec import inspect as shapes

from .errors import DeclarationError
from .yamltext import Document, Key

__all__ = ["Custom", "convert", "nearest"]

T = TypeVar("T")
#: Builds a value of a type that msgspec does not know; raises an EarthSciIOError if it can't.
Custom: TypeAlias = Callable[[type, Any], Any]

#: What each shape is written as, and what it is called.
_FORMS: Final[dict[type, tuple[tuple[type, ...], str]]] = {
    shapes.StructType: ((dict,), "a mapping"),
    shapes.DictType: ((dict,), "a mapping"),
    shapes.VarTupleType: ((list,), "a list"),
    shapes.StrType: ((str,), "text"),
    shapes.BoolType: ((bool,), "true or false"),
    shapes.IntType: ((int,), "a whole number"),
    shapes.FloatType: ((int, float), "a number"),
    shapes.NoneType: ((type(None),), "nothing"),
    shapes.AnyType: ((object,), "a value"),
    shapes.CustomType: ((str, int, float, list, dict), "a value"),
}


def nearest(name: str, known: Iterable[str], *, cutoff: float = 0.5) -> str:
    """Suggest the nearest of some names and list them all, as a hint."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=cutoff)
    guess = f"Did you mean {near[0]!r}? " if near else ""
    return f"{guess}There are: {', '.join(names)}" if names else ""


def convert(
    document: Document, kind: type[T], custom: Custom | None = None, *, at: tuple[str, ...] = ()
) -> T:
    """Check the shape of a document, or of the mapping at a key of it, and build `kind` from it.

    Parameters
    ----------
    document : Document
        What was read.
    kind : type
        A ``msgspec.Struct``.
    custom : callable
        ``custom(type, value)`` builds values of types that ``msgspec`` does not know; none if None.
    at : tuple of str
        Where in the document; what is not there is an empty mapping.

    Raises
    ------
    DeclarationError
        Naming file, line and key: an unknown key (and the nearest there is), one that is missing, or a value
        of the wrong type (and what was expected).
    """
    data = document.data
    for step in at:
        data = data.get(step, {})
    _Check(document, custom).value(shapes.type_info(kind), data, at)
    return msgspec.convert(data, kind, dec_hook=custom)


class _Check:
    def __init__(self, document: Document, custom: Custom | None) -> None:
        self.document = document
        self.custom = custom

    def value(self, shape: Any, value: Any, key: Key) -> None:
        shape = _bare(shape)
        if isinstance(shape, shapes.UnionType):
            # alternatives differ in their outer form, so at most one of them can be meant
            meant = [option for option in shape.types if _fits(_bare(option), value)]
            if not meant:
                raise self.mismatch(shape, value, key)
            self.value(meant[0], value, key)
            return
        if not _fits(shape, value):
            raise self.mismatch(shape, value, key)
        match shape:
            case shapes.StructType():
                self.struct(shape, value, key)
            case shapes.DictType(value_type=item_shape):
                for name, item in value.items():
                    self.value(item_shape, item, (*key, name))
            case shapes.VarTupleType(item_type=item_shape):
                for position, item in enumerate(value):
                    self.value(item_shape, item, (*key, position))
            case shapes.TupleType(item_types=item_shapes):
                for position, (item_shape, item) in enumerate(zip(item_shapes, value, strict=True)):
                    self.value(item_shape, item, (*key, position))
            case shapes.CustomType(cls=cls) if self.custom is not None:
                with self.document.at(*key):
                    self.custom(cls, value)
            case shapes.IntType(ge=int(least)) if value < least:
                raise self.document.error(key, f"expected {least} or more, got {value}")

    def struct(self, shape: shapes.StructType, value: dict[str, Any], key: Key) -> None:
        known = {field.encode_name: field for field in shape.fields}
        for name, item in value.items():
            if name not in known:
                raise self.document.error((*key, name), f"unknown key {name!r}", hint=nearest(name, known))
            self.value(known[name].type, item, (*key, name))
        for name, field in known.items():
            if field.required and name not in value:
                raise self.document.error(key, f"the key {name!r} is missing")

    def mismatch(self, shape: Any, value: Any, key: Key) -> DeclarationError:
        options = _options(shape)
        expected, hint = " or ".join(_called(option) for option in options), None
        match options[0], value:
            case _, None:
                hint = "Give a value, or leave the key out"
            case shapes.StrType(), int() | float():
                hint = "Put it in quotes"
            case shapes.StrType(), dict():
                hint = "Text that starts with a brace needs quotes"
            case shapes.BoolType(), str():
                hint = "Write true or false, without quotes"
            case shapes.VarTupleType(), str():
                hint = f"Write [{value}]"
            case shapes.LiteralType(values=values), str():
                # a word of a few that mean different things: "backward" is no misspelt "forward"
                hint = nearest(value, map(str, values), cutoff=0.75)
        return self.document.error(key, f"expected {expected}, got {_describe(value)}", hint=hint)


def _bare(shape: Any) -> Any:
    """Take annotations off."""
    while isinstance(shape, shapes.Metadata):
        shape = shape.type
    return shape


def _options(shape: Any) -> list[Any]:
    """Give the alternatives that a shape leaves, besides nothing at all."""
    every = shape.types if isinstance(shape, shapes.UnionType) else (shape,)
    return [_bare(option) for option in every if not isinstance(option, shapes.NoneType)]


def _fits(shape: Any, value: Any) -> bool:
    """Whether a value is of the outer form of a shape, so that the shape may judge what is inside."""
    match shape:
        case shapes.LiteralType(values=values):
            return any(type(value) is type(known) and value == known for known in values)
        case shapes.TupleType(item_types=items):
            return isinstance(value, list) and len(value) == len(items)
        case shapes.BoolType() | shapes.AnyType():
            return isinstance(value, _FORMS[type(shape)][0])
    # to Python, True is a number
    return isinstance(value, _FORMS[type(shape)][0]) and not isinstance(value, bool)


def _called(shape: Any) -> str:
    match shape:
        case shapes.LiteralType(values=values):
            return " or ".join(repr(value) for value in values)
        case shapes.TupleType(item_types=items):
            return f"a list of {len(items)}"
    return _FORMS[type(shape)][1]


def _describe(value: Any) -> str:
    match value:
        case None:
            return "nothing"
        case bool():
            return str(value).lower()
        case dict():
            return "a mapping"
        case list():
            return f"a list of {len(value)}"
        case str():
            return f"the text {value!r}"
    return f"the number {value}"
