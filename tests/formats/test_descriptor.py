"""A descriptor is of one version of a file, from the first byte read to the last."""

from __future__ import annotations

import os

import pytest

from earthsciio.errors import DecodeError
from earthsciio.formats.descriptor import Descriptor


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(b"old!")
    os.utime(path, ns=(0, 0))
    return path


def test_a_file_rewritten_in_place_while_it_is_read_is_an_error(path):
    descriptor = Descriptor(str(path))
    with pytest.raises(DecodeError, match="changed while in use"), descriptor.use() as number:
        assert os.pread(number, 2, 0) == b"ol"
        with path.open("r+b") as file:
            file.write(b"new!")
        assert os.pread(number, 2, 2) == b"w!"


def test_a_file_replaced_while_it_is_read_is_read_to_its_end(path):
    descriptor = Descriptor(str(path))
    with descriptor.use() as number:
        new = path.with_suffix(".new")
        new.write_bytes(b"new!")
        new.replace(path)
        assert os.pread(number, 4, 0) == b"old!"


def test_an_error_of_the_reader_is_not_hidden(path):
    with pytest.raises(ZeroDivisionError), Descriptor(str(path)).use():
        path.write_bytes(b"other")
        raise ZeroDivisionError
