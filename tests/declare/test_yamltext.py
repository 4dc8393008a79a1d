"""What YAML text means here, and that every complaint points at its line."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from earthsciio.errors import DeclarationError, FileFormatError, MissingFile
from earthsciio.yamltext import Document


@pytest.fixture
def read(tmp_path):
    def read(text: str, **environ: str) -> Document:
        path = tmp_path / "file.yaml"
        path.write_text(text)
        return Document.read(path, environ)

    return read


# spec: P6.3
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("on", "on"),
        ("Yes", "Yes"),
        ("true", True),
        ("FALSE", False),
        ("null", None),
        ("", None),
        ("12:30:45", "12:30:45"),
        ("1:30", "1:30"),
        ("2000-02-30", "2000-02-30"),
        ("1970-01-01", "1970-01-01"),
        ("2019-07-01T12:00:00Z", "2019-07-01T12:00:00Z"),
        ("1970", 1970),
        ("010", 10),
        ("0x1f", 31),
        ("0o17", 15),
        ("1_000", "1_000"),
        ("1e3", 1000.0),
        ("1e-12", 1e-12),
        (".5", 0.5),
        ("-.inf", -math.inf),
        ("+7", 7),
        ("'7'", "7"),
        ('"true"', "true"),
        ("~", None),
        ("~/data", "~/data"),
        ("!!str 7", "7"),
        ("!!float 7", 7.0),
    ],
)
def test_scalars_are_typed_by_the_core_schema(read, text, value):
    found = read(f"key: {text}").data["key"]
    assert found == value
    assert type(found) is type(value)


def test_keys_are_always_text(read):
    assert read("on: 1\n7: 2\n2000-01-01: 3").data == {"on": 1, "7": 2, "2000-01-01": 3}


# spec: P6.2
def test_a_key_that_stands_twice_is_an_error_naming_both_lines(read):
    with pytest.raises(DeclarationError, match="'b' stands twice, first on line 2") as caught:
        read("a:\n  b: 1\n  c: 2\n  b: 3\n")
    assert caught.value.line == 4
    assert caught.value.key == "a.b"


def test_lines_are_known_of_keys_and_items(read):
    doc = read("a:\n  - 1\n  -\n    b: 2\nc: {d: 3,\n  e: 4}\n")
    assert {key: doc.line(key) for key in [("a",), ("a", 0), ("a", 1, "b"), ("c", "d"), ("c", "e")]} == {
        ("a",): 1,
        ("a", 0): 2,
        ("a", 1, "b"): 4,
        ("c", "d"): 5,
        ("c", "e"): 6,
    }
    assert doc.line(("c", "not", "written")) == 5


def test_merged_keys_yield_to_own_ones_and_to_earlier_mappings(read):
    doc = read("x: &x {a: 1, b: 1}\ny: &y {b: 2, c: 2}\nz:\n  c: 3\n  <<: [*x, *y]\n")
    assert doc.data["z"] == {"a": 1, "b": 1, "c": 3}
    assert doc.line(("z", "c")) == 4
    with pytest.raises(DeclarationError, match="merges mappings only"):
        read("x: &x 1\ny:\n  <<: *x\n")


def test_an_anchor_that_contains_itself_is_an_error(read):
    with pytest.raises(DeclarationError, match="contains itself"):
        read("a: &a [*a]")


# spec: P6.2
@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("a: 1\nb: {c}/x: 2\n", 2, "not YAML"),
        ("a: 1\n\tb: 2\n", 2, "not YAML"),
        ("- 1\n", 1, "must hold a mapping"),
        ("", 1, "must hold a mapping"),
        ("a: 1\nb: %Y\n", 2, "not YAML"),
        ("a: 1\n---\nb: 2\n", 2, "not YAML"),
        ("a: 1\nb: !!python/none x\n", 2, "means nothing here"),
        ("a: 1\nb: !!int x\n", 2, "can't read 'x' as int"),
        ("a: 1\n? [b]\n: 2\n", 2, "plain word"),
        ("a:\n\t- 1\n", 2, "Use spaces, not tabs"),
        ("a: 'b\nc: 1\nd: 2\n", 1, "Close the quotes"),
        ("a: 1\nb: x\0y\n", 2, "U\\+0000 can't stand"),
        ('a: 1\nb: "x\\0y"\n', 2, "U\\+0000 can't stand"),
        ('a: 1\nb: "\\ud800"\n', 2, "U\\+D800 can't stand"),
        ('a: 1\nb: "\\UFFFFFFFF"\n', 2, "not YAML"),
        ("x: &x {}\ny:\n  <<: *x\n  <<: *x\n", 4, "'<<' stands twice, first on line 3"),
    ],
)
def test_text_that_is_no_such_yaml_is_an_error_with_its_line(read, text, line, says):
    with pytest.raises(DeclarationError, match=says) as caught:
        read(text)
    assert caught.value.line == line
    assert caught.value.file.endswith("file.yaml")


def test_a_merge_sign_as_a_value_is_text(read):
    assert read("a: <<").data == {"a": "<<"}


# spec: P6.6
@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"]
)
def test_the_encodings_of_yaml_are_read_with_a_mark_or_without(tmp_path, encoding):
    (tmp_path / "x.yaml").write_bytes("a: vent d'été\n".encode(encoding))
    assert Document.read(tmp_path / "x.yaml").data == {"a": "vent d'été"}


def test_another_encoding_is_an_error_with_its_line(tmp_path):
    (tmp_path / "x.yaml").write_bytes("a: 1\r\nb: été\r\n".encode("latin-1"))
    with pytest.raises(DeclarationError, match="the byte 0xe9 is not UTF-8") as caught:
        Document.read(tmp_path / "x.yaml")
    assert caught.value.line == 2


# spec: P6.6
# each of these takes minutes, or the interpreter's stack, if it is not refused
@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        (
            "a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
            + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 20)),
            1,
            "anchors repeat more than",
        ),
        (
            "a0: &a0 {k: v}\n"
            + "".join(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 20)),
            1,
            "anchors repeat more than",
        ),
        (f'a: &a "{"$${x}" * 20_000}"\nb: [{"*a, " * 2000}]\n', 1, "anchors repeat more than"),
        ("a: 1\nb: " + "[" * 100_000, 2, "nested more than"),
        ("".join(f"{' ' * n}k:\n" for n in range(500)), 50, "nested more than"),
        (
            f"a0: &a0 {'[' * 40}{']' * 40}\n"
            + "".join(f"a{n}: &a{n} {'[' * 40}*a{n - 1}{']' * 40}\n" for n in range(1, 40)),
            1,
            "nested more than",
        ),
    ],
)
def test_what_would_grow_without_end_is_an_error(read, text, line, says):
    with pytest.raises(DeclarationError, match=says) as caught:
        read(text)
    assert caught.value.line == line


def test_anchors_may_repeat_a_mapping_thousands_of_times(read):
    doc = read("x: &x {a: 1, b: 2}\n" + "".join(f"k{n}: {{<<: *x, c: {n}}}\n" for n in range(3000)))
    assert doc.data["k2999"] == {"a": 1, "b": 2, "c": 2999}


def test_a_message_quotes_no_megabytes(read):
    with pytest.raises(DeclarationError) as caught:
        read(f"a: !!int {'x' * 100_000}\n{'k' * 900}: 1\n")
    assert len(str(caught.value)) < 1500


def test_a_data_file_named_by_mistake_is_not_read_whole(tmp_path):
    with (tmp_path / "x.yaml").open("wb") as stream:
        stream.truncate(1 << 40)
    with pytest.raises(DeclarationError, match="no declaration"):
        Document.read(tmp_path / "x.yaml")


def test_binary_rubbish_is_an_error(tmp_path):
    (tmp_path / "x.yaml").write_bytes(b"\x89HDF\r\n\x1a\n\x00\x00")
    with pytest.raises(DeclarationError, match="not YAML"):
        Document.read(tmp_path / "x.yaml")


# spec: P6.2
def test_a_file_that_is_not_there_is_also_a_filenotfounderror(tmp_path):
    with pytest.raises(MissingFile) as caught:
        Document.read(tmp_path / "nope.yaml")
    assert isinstance(caught.value, FileNotFoundError)
    with pytest.raises(FileFormatError):
        Document.read(tmp_path)


# spec: P6.3
def test_variables_are_replaced_before_a_plain_scalar_is_typed(read):
    doc = read(
        'a: ${N}\nb: "${N}"\nc: x${N}y\nd: ${EMPTY:-5}\ne: ${UNSET:-}\nf: $${N}\ng: $N ~ $\n', N="3", EMPTY=""
    )
    assert doc.data == {"a": 3, "b": "3", "c": "x3y", "d": 5, "e": None, "f": "${N}", "g": "$N ~ $"}


def test_values_of_variables_are_never_read_as_yaml(read):
    assert read("a: ${X}", X="{b: 1}").data == {"a": "{b: 1}"}


def test_a_variable_that_is_not_set_is_an_error_naming_it(read):
    with pytest.raises(DeclarationError, match="variable WINDS is not set") as caught:
        read("a: 1\nb: ${WINDS}/x\n")
    assert caught.value.line == 2
    assert "${WINDS:-default}" in str(caught.value)
    with pytest.raises(DeclarationError, match="can't read"):
        read("b: ${not a name}\n")


def test_the_environment_is_that_of_the_process(tmp_path, monkeypatch):
    monkeypatch.setenv("EARTHSCI_TEST_X", "here")
    path: Path = tmp_path / "x.yaml"
    path.write_text("a: ${EARTHSCI_TEST_X}")
    assert Document.read(path).data == {"a": "here"}
