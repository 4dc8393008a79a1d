"""Files under a NetCDF source that are no NetCDF: what they are instead, and what to do."""

from __future__ import annotations

import pytest

from earthsciio import FileFormatError, NetCDFReader


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "the file is empty .*Fetch it again"),
        (
            b"GRIB\x00\x01\x02\x03 and so on",
            r"it starts with b'GRIB\\x00\\x01\\x02\\x03 and so '.*the URL delivers",
        ),
        (
            b"<!DOCTYPE html>\n<title>Earthdata Login</title>",
            "it is a web page .*credentials",
        ),
        (b"\n <HTML><body>Sign in</body></HTML>", "it is a web page"),
        (b'<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>', "it is a web page"),
    ],
    ids=["empty", "GRIB", "login", "page", "XML"],
)
def test_what_it_is_instead(tmp_path, content, said):
    path = tmp_path / "winds.nc"
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match=said) as caught:
        NetCDFReader().open(str(path))
    assert caught.value.file == str(path)
