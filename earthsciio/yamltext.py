"""YAML text as plain data that remembers its lines, so that every complaint can point at the text it means.

YAML 1.1, as PyYAML reads it, takes ``no`` for a boolean, ``1:30`` for 90, ``2000-02-30`` for a broken date
and ``1e3`` for text. Here the smaller core schema of YAML 1.2 decides instead: null, true and false,
numbers, and everything else is text, times above all. A key that stands twice is an error, and ``${NAME}``
is replaced from the environment.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import yaml

from .errors import DeclarationError, EarthSciIOError
from .yamlnodes import DEEPEST, MERGE, PLAIN, TAG, compose, shortened

__all__ = ["CORE_SCALARS", "Document", "Key", "plain_value", "spell"]

#: Where in the data something is: mapping keys and list positions, from the outside in.
Key: TypeAlias = tuple[str | int, ...]

#: What a plain scalar must look like not to be text, by tag (YAML 1.2, section 10.3.2).
CORE_SCALARS: Final[dict[str, re.Pattern[str]]] = {
    TAG + "null": re.compile(r"~|null|Null|NULL|"),
    TAG + "bool": re.compile(r"true|True|TRUE|false|False|FALSE"),
    TAG + "int": re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+"),
    TAG + "float": re.compile(
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
    ),
}
_VARIABLE: Final = re.compile(r"\$\$\{|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<default>:-[^}]*)?\}|\$\{")
#: What an escape can write into quotes, and no file name, URL or message can hold.
_UNSPEAKABLE: Final = re.compile("[\0\ud800-\udfff]")
#: Nodes that anchors may repeat in all: thousands of sources that share a mapping, no exponential growth.
_REPEATED: Final = 100_000


def _boolean(text: str) -> bool:
    return ("false", "true").index(text.lower()) == 1


def _whole(text: str) -> int:
    return int(text, 0 if text[:2] in ("0x", "0o") else 10)


def _number(text: str) -> float:
    return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))


#: How a scalar is read, by tag.
_READ: Final[dict[str, Callable[[str], Any]]] = {
    "str": str, "null": lambda _: None, "bool": _boolean, "int": _whole, "float": _number
}  # fmt: skip


def plain_value(text: str) -> Any:
    """Give what a plain (unquoted) scalar means: None, true or false, a number, or else the text itself."""
    for tag, form in CORE_SCALARS.items():
        if form.fullmatch(text):
            try:
                return _READ[tag.removeprefix(TAG)](text)
            except ValueError:  # thousands of digits
                break
    return text


@dataclass(frozen=True, slots=True)
class Document:
    """A YAML file as plain data.

    Attributes
    ----------
    file : pathlib.Path
        Where it was read from.
    data : dict
        Mappings, lists, text, numbers, booleans and None.
    lines : mapping of Key to int
        The line (from 1) of every key and list item.
    """

    file: Path
    data: dict[str, Any]
    lines: Mapping[Key, int]

    @classmethod
    def read(cls, path: str | os.PathLike[str], environ: Mapping[str, str] = os.environ) -> Document:
        """Read a file.

        Parameters
        ----------
        path : path
            A YAML file whose outermost value is a mapping.
        environ : mapping of str to str
            What ``${NAME}`` and ``${NAME:-default}`` stand for; the default serves where the variable is
            unset or empty. They are replaced before the type of a plain scalar is decided, as if the value
            had been written there; in quotes they stay text. ``$${`` is a literal ``${``.

        Raises
        ------
        MissingFile
            If there is no such file (also a FileNotFoundError).
        FileFormatError
            If it can't be read (also an OSError).
        DeclarationError
            If it is not YAML, names a key twice, grows by its anchors without end, or needs a variable that
            is not set.
        """
        file = Path(path)
        root = compose(file)
        builder = _Builder(file, environ)
        data = builder.build(root, ())
        return cls(file, data, builder.lines)

    def line(self, key: Key) -> int | None:
        """Give the line of a key, or of the nearest enclosing one that is written down."""
        while key and key not in self.lines:
            key = key[:-1]
        return self.lines.get(key)

    def error(self, key: Key, message: str, *, hint: str | None = None, **context: Any) -> DeclarationError:
        """Make an error that names file, line and key."""
        return DeclarationError(
            shortened(message),
            file=self.file,
            line=self.line(key),
            key=spell(key) or None,
            hint=hint,
            **context,
        )

    @contextmanager
    def at(self, *key: str | int) -> Iterator[None]:
        """Say of any error of the library raised inside that it is about this key."""
        try:
            yield
        except EarthSciIOError as error:
            if "line" in error.context:  # something further in knows better
                raise
            raise self.error(key, str(error.args[0]), hint=error.hint, **error.context) from error


def spell(key: Key) -> str:
    """Write a key for people: ``sources.uwnd.mirrors[0]``."""
    text = ""
    for step in key:
        text += f"[{step}]" if isinstance(step, int) else f".{step}"
    return shortened(text.removeprefix("."))


class _Builder:
    """Turns composed nodes into data, and notes the line of each key."""

    def __init__(self, file: Path, environ: Mapping[str, str]) -> None:
        self.file = file
        self.environ = environ
        self.lines: dict[Key, int] = {(): 1}
        self._open: list[yaml.Node] = []
        self._seen: set[int] = set()
        self._repeated = 0

    def build(self, node: yaml.Node, key: Key) -> Any:
        if id(node) in self._seen:  # all nodes live as long as the root
            self._repeated += 1 + len(node.value) // 100
        self._seen.add(id(node))
        if self._repeated > _REPEATED:
            raise self._error(node, key, f"its anchors repeat more than {_REPEATED} values")
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, key)
        if any(node is outer for outer in self._open):
            raise self._error(node, key, "an anchor that contains itself")
        if len(self._open) == DEEPEST:
            raise self._error(node, key, f"nested more than {DEEPEST} deep")
        self._open.append(node)
        try:
            if isinstance(node, yaml.MappingNode):
                return self._mapping(node, key)
            items = []
            for position, item in enumerate(node.value):
                self.lines[(*key, position)] = _line(item)
                items.append(self.build(item, (*key, position)))
            return items
        finally:
            self._open.pop()

    def _mapping(self, node: yaml.MappingNode, key: Key) -> dict[str, Any]:
        data: dict[str, Any] = {}
        merges = [(name, value) for name, value in node.value if name.tag == MERGE]
        if len(merges) > 1:
            first = _line(merges[0][0])
            raise self._error(
                merges[1][0], key, f"the key '<<' stands twice, first on line {first}",
                hint="Write <<: [*one, *other]",
            )  # fmt: skip
        for _, value in merges:
            # of several mappings the first that has a key gives it
            for each in reversed(value.value if isinstance(value, yaml.SequenceNode) else [value]):
                if not isinstance(each, yaml.MappingNode):
                    raise self._error(each, key, "<< merges mappings only")
                data |= self.build(each, key)
        own: set[str] = set()
        for name_node, value_node in node.value:
            if name_node.tag == MERGE:
                continue
            if not isinstance(name_node, yaml.ScalarNode):
                raise self._error(name_node, key, "a key must be a plain word")
            name = self._spoken(name_node, key)
            here = (*key, name)
            if name in own:
                first = self.lines[here]
                raise self._error(name_node, here, f"the key {name!r} stands twice, first on line {first}")
            own.add(name)
            self.lines[here] = _line(name_node)
            data[name] = self.build(value_node, here)
        return data

    def _scalar(self, node: yaml.ScalarNode, key: Key) -> Any:
        text = self._expand(node, key)
        if node.tag in (PLAIN, MERGE):  # as a value, << is text
            return plain_value(text)
        name = node.tag.removeprefix(TAG)
        try:
            return _READ[name](text)
        except KeyError:
            raise self._error(node, key, f"the tag {node.tag!r} means nothing here") from None
        except ValueError:
            raise self._error(node, key, f"can't read {text!r} as {name}") from None

    def _expand(self, node: yaml.ScalarNode, key: Key) -> str:
        def value(found: re.Match[str]) -> str:
            if found[0] == "$${":
                return "${"
            name, default = found["name"], found["default"]
            if name is None:
                raise self._error(
                    node, key, f"can't read {node.value!r}", hint="Write ${NAME}, ${NAME:-default}, or $${"
                )
            known = self.environ.get(name)
            if default is not None:
                return known or default.removeprefix(":-")
            if known is None:
                raise self._error(
                    node,
                    key,
                    f"the environment variable {name} is not set",
                    hint=f"Set it (export {name}=...), or write ${{{name}:-default}}",
                )
            return known

        return _VARIABLE.sub(value, self._spoken(node, key))

    def _spoken(self, node: yaml.ScalarNode, key: Key) -> str:
        text = str(node.value)
        if found := _UNSPEAKABLE.search(text):
            raise self._error(node, key, f"the character U+{ord(found[0]):04X} can't stand in text")
        return text

    def _error(self, node: yaml.Node, key: Key, message: str, *, hint: str | None = None) -> DeclarationError:
        message = shortened(message)
        return DeclarationError(message, file=self.file, line=_line(node), key=spell(key) or None, hint=hint)


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1
