"""``earthsciio cache``: list, verify, prune; and the forms of arguments that warming shares with it."""

from __future__ import annotations

import argparse
import json
from datetime import timedelta

import pytest

from earthsciio.cache import Cache
from earthsciio.cli import main
from earthsciio.cli.values import Checksums, duration, selector, size, window_of
from earthsciio.errors import DeclarationError, MissingFile


@pytest.fixture
def root(tmp_path):
    """Two files of winds (10 bytes of 2001, 20 of 2002) and one of rain (30 of 2003)."""
    cache = Cache(root=tmp_path / "cache", offline=False)
    for number, (name, source) in enumerate([("a", "winds"), ("b", "winds"), ("c", "rain")], start=1):
        path = tmp_path / f"{name}.nc"
        path.write_bytes(name.encode() * 10 * number)
        entry = cache.fetch(path.as_uri(), source_loader=source)
        meta = tmp_path / "cache/v1/meta" / f"{entry.key}.json"
        meta.write_text(meta.read_text().replace(entry.manifest.fetched_at, f"200{number}-01-01T00:00:00Z"))
    return tmp_path / "cache"


@pytest.fixture
def cache(root, capsys):
    def cache(*arguments: str) -> tuple[int, dict]:
        code = main(["cache", *arguments, "--root", str(root), "--json"])
        return code, json.loads(capsys.readouterr().out)

    return cache


def names(report: dict) -> list[str]:
    return [file["url"].rpartition("/")[2] for file in report["files"]]


def test_ls_lists_files_oldest_first_and_by_source(cache, root, capsys):
    code, report = cache("ls")
    assert (code, names(report), report["bytes"]) == (0, ["a.nc", "b.nc", "c.nc"], 60)
    assert report["files"][2]["fetched_at"] == "2003-01-01T00:00:00Z"
    assert names(cache("ls", "--source", "rain")[1]) == ["c.nc"]
    assert main(["cache", "ls", "--root", str(root)]) == 0
    out = capsys.readouterr().out
    assert "2001-01-01T00:00:00Z" in out
    assert "3 files, 60 B there" in out


def test_the_cache_of_the_environment_is_the_default(root, capsys, monkeypatch):
    monkeypatch.setenv("EARTHSCIDATADIR", str(root))
    assert main(["cache", "ls", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["files"]) == 3


def test_an_empty_cache_is_no_error_and_is_not_made(tmp_path, capsys):
    for action in ("ls", "verify", "prune"):
        assert main(["cache", action, "--root", str(tmp_path / "none")]) == 0
    assert "0 files" in capsys.readouterr().out


def test_verify_ends_with_1_where_bytes_are_wrong_only(cache, root, capsys):
    assert cache("verify") == (0, {"root": str(root), "ok": True, "problems": []})
    blobs = sorted(root.glob("v1/blobs/*/*"), key=lambda path: path.stat().st_size)
    blobs[2].unlink()
    code, report = cache("verify")
    assert (code, [each["serious"] for each in report["problems"]]) == (0, [False])
    blobs[0].write_bytes(b"x" * 10)
    code, report = cache("verify")
    assert (code, report["ok"]) == (1, False)
    assert main(["cache", "verify", "--root", str(root)]) == 1
    out = capsys.readouterr().out
    assert f"WRONG: {blobs[0]}" in out
    assert "1 files are wrong" in out


@pytest.mark.parametrize(
    ("criteria", "removed"),
    [
        ([], []),
        (["--older-than", "1d"], ["a.nc", "b.nc", "c.nc"]),
        (["--older-than", "3000w"], []),
        (["--max-bytes", "50"], ["a.nc"]),
        (["--max-bytes", "0.03kB"], ["a.nc", "b.nc"]),
        (["--source", "winds"], ["a.nc", "b.nc"]),
        (["--source", "rain", "--max-bytes", "30"], ["c.nc"]),
    ],
)
def test_prune_removes_by_its_criteria_and_a_dry_run_nothing(cache, criteria, removed):
    assert names(cache("prune", *criteria, "--dry-run")[1]) == removed
    assert len(cache("ls")[1]["files"]) == 3
    assert names(cache("prune", *criteria)[1]) == removed
    assert len(cache("ls")[1]["files"]) == 3 - len(removed)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90), ("0.5s", 0.5), ("15m", 900), ("15 min", 900), ("6h", 21600), ("30D", 2592000),
        ("2w", 1209600),
    ],
)  # fmt: skip
def test_durations(text, seconds):
    assert duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("lat=1:3", ("lat", (1, 3))),
        ("lat=0:9:2", ("lat", (0, 9, 2))),
        ("lon=3,0,1", ("lon", [3, 0, 1])),
        ("lev=5", ("lev", [5])),
    ],
)
def test_selectors(text, value):
    assert selector(text) == value


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (duration, "soon"), (duration, "-3h"), (size, "much"), (selector, "lat"), (selector, "=1:2"),
        (selector, "lat=-1:2"), (selector, "lat=1:"), (selector, "lat="),
    ],
)  # fmt: skip
def test_arguments_of_no_known_form_are_refused(parse, text):
    with pytest.raises(argparse.ArgumentTypeError, match="Write"):
        parse(text)


def test_sizes_and_windows():
    assert (size("4096"), size("1.5 KiB"), size("2MB")) == (4096, 1536, 2_000_000)
    assert window_of(None) is None
    assert window_of([("lat", (1, 3)), ("lon", [0])]).shape({"lat": 4, "lon": 4}) == (2, 1)


def test_lists_of_checksums(tmp_path):
    path = tmp_path / "SHA256SUMS"
    one, other = "1" * 64, "2" * 64
    path.write_text(f"# a comment\n\n{one} *a.nc\n{other}  https://h/x/b.nc\n{one} *a.nc\n")
    listed = Checksums(str(path))
    assert listed.of("https://h/x/a.nc") == one
    assert listed.of("https://h/x/b.nc") == other
    assert listed.of("https://h/y/b.nc") is None
    for wrong in (f"{one}\n", f"{one}  a.nc\n{other}  a.nc\n", "12  a.nc\n"):
        path.write_text(wrong)
        with pytest.raises(DeclarationError):
            Checksums(str(path))
    with pytest.raises(MissingFile):
        Checksums(str(tmp_path / "none"))
