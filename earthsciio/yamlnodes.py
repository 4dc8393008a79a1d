"""YAML bytes as composed nodes: the encoding found, and everything refused that is no declaration.

What stands here is only what has to hold before a value means anything: the bytes are text of an encoding
YAML allows, the text is one document, and it is no larger and no deeper than a person or a program writes a
declaration. Whatever is wrong is a :class:`~earthsciio.errors.DeclarationError` with file and line.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import yaml
from yaml.composer import ComposerError
from yaml.reader import ReaderError

from .errors import DeclarationError, FileFormatError, MissingFile

__all__ = ["DEEPEST", "MERGE", "PLAIN", "TAG", "compose", "shortened"]

TAG: Final = "tag:yaml.org,2002:"
#: The tag of a scalar in no quotes, whose type is decided after variables are replaced.
PLAIN: Final = "plain"
MERGE: Final = TAG + "merge"
#: Levels of nesting; a case has six, and what options hold a few more.
DEEPEST: Final = 50
#: A million indices fit; a data file named by mistake is not read whole.
_LARGEST: Final = 32 << 20
_LONGEST: Final = 1000
_BREAK: Final = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
#: What the first bytes say of the encoding (YAML 1.2, section 5.2): a mark, or the zeros of a first character
#: that is ASCII; "." is any byte.
_ENCODINGS: Final = (
    (re.compile(rb"\x00\x00\xfe\xff|\xff\xfe\x00\x00", re.DOTALL), "utf-32"),
    (re.compile(rb"\x00\x00\x00[^\x00]", re.DOTALL), "utf-32-be"),
    (re.compile(rb"[^\x00]\x00\x00\x00", re.DOTALL), "utf-32-le"),
    (re.compile(rb"\xfe\xff|\xff\xfe", re.DOTALL), "utf-16"),
    (re.compile(rb"\x00[^\x00]", re.DOTALL), "utf-16-be"),
    (re.compile(rb"[^\x00]\x00", re.DOTALL), "utf-16-le"),
)
#: What to do about a complaint of the parser, by a word in it; the first found counts.
_HINTS: Final[tuple[tuple[str, str | None], ...]] = (
    ("'\\t'", "Use spaces, not tabs"),
    ("quoted scalar", "Close the quotes"),
    ("single document", "Leave out the line --- that begins another document"),
    ("deep", None),
    ("duplicate anchor", "Give every anchor a name of its own"),
    ("", "Text that starts with { [ % * & ! @ or `, or holds ': ' or ' #', needs quotes"),
)


class _Loader(yaml.SafeLoader):
    """Composes nodes down to a depth, and leaves open what a plain scalar is."""

    _depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        self._depth += 1
        if self._depth > DEEPEST:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise ComposerError(None, None, f"nested more than {DEEPEST} deep", mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def resolve(self, kind: type[yaml.Node], value: Any, implicit: Any) -> Any:
        if kind is not yaml.ScalarNode:
            return super().resolve(kind, value, implicit)  # type: ignore[no-untyped-call]
        if not implicit[0]:
            return TAG + "str"
        return MERGE if value == "<<" else PLAIN


def compose(file: Path) -> yaml.MappingNode:
    """Read a file whose outermost value is a mapping.

    Raises
    ------
    MissingFile
        If there is no such file (also a FileNotFoundError).
    FileFormatError
        If it can't be read (also an OSError).
    DeclarationError
        If it is not YAML, not text, or no declaration by its size or depth.
    """
    text = _text(file)
    try:
        loader = _Loader(text)
    except ReaderError as error:  # with the position of a character that YAML does not allow
        raise DeclarationError(
            f"not YAML: the character U+{ord(text[error.position]):04X} can't stand in it",
            file=file,
            line=_line_at(text[: error.position]),
            hint="Remove it",
        ) from error
    try:
        root = loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        # what was left open is to be seen where it began
        begun = error.context_mark if "while scanning" in (error.context or "") else None
        mark = begun or error.problem_mark or error.context_mark
        message = f"not YAML: {f'{error.context}: ' if error.context else ''}{error.problem}"
        raise DeclarationError(
            shortened(message),
            file=file,
            line=None if mark is None else mark.line + 1,
            hint=next(hint for word, hint in _HINTS if word in message),
        ) from error
    except (ValueError, OverflowError) as error:  # "\UFFFFFFFF"
        raise DeclarationError(f"not YAML: {error}", file=file, line=loader.line + 1) from error
    if not isinstance(root, yaml.MappingNode):
        raise DeclarationError("the file must hold a mapping (key: value)", file=file, line=1)
    return root


def _text(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            data = stream.read(_LARGEST + 1)
    except FileNotFoundError as error:
        raise MissingFile("there is no such file", file=file) from error
    except OSError as error:
        raise FileFormatError(f"can't be read: {error.strerror}", file=file) from error
    if len(data) > _LARGEST:
        raise DeclarationError(f"more than {_LARGEST >> 20} MiB are no declaration", file=file, line=1)
    encoding = next((name for form, name in _ENCODINGS if form.match(data)), "utf-8")
    try:
        return data.decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode(encoding, errors="ignore")
        raise DeclarationError(
            f"not YAML: the byte 0x{data[error.start]:02x} is not {encoding.upper()}",
            file=file,
            line=_line_at(before),
            hint="Save it as UTF-8",
        ) from error


def _line_at(before: str) -> int:
    return len(_BREAK.findall(before)) + 1


def shortened(text: str) -> str:
    """Cut what nobody reads to the end; a message may quote megabytes."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."
