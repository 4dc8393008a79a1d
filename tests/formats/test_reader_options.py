"""Reader options of the wrong type: text that says "no" is no false."""

from __future__ import annotations

import pytest

from earthsciio.errors import DeclarationError
from earthsciio.formats import CSVReader, NetCDFReader


@pytest.mark.parametrize(
    ("reader", "options", "text"),
    [
        (NetCDFReader, {"mask_valid_range": "no"}, "mask_valid_range is true or false, not 'no'"),
        (NetCDFReader, {"sort_time": 1}, "sort_time is true or false, not 1"),
        (NetCDFReader, {"group": 5}, "group is text, not 5"),
        (CSVReader, {"comment": 7}, "comment is text, not 7"),
    ],
)
def test_an_option_of_the_wrong_type_is_refused(reader, options, text):
    with pytest.raises(DeclarationError, match=text):
        reader(**options)
