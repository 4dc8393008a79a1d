"""s3:, gs: and az: URLs through obstore, against a loopback stand-in for the store."""

import builtins
import os

import pytest

from earthsciio.cache import Cache, FilePeriod, range_keyed_url, sha256_bytes, transport_registry
from earthsciio.errors import AuthError, SourceNotFound, TransportError, Unsupported

DATA = os.urandom(300_000)
KEY_ID, SECRET = "AKIDNOTTOBESEEN", "s3cr3t-access-key"


@pytest.fixture
def cache(tmp_path, server, monkeypatch):
    """A cache whose s3: URLs lead to the loopback server, as bucket ``winds``."""
    objects = pytest.importorskip("earthsciio.cache.transports.objects")
    pytest.importorskip("obstore")
    for name in [name for name in os.environ if name.startswith(("AWS_", "GOOGLE_", "AZURE_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url(""))
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setattr(objects, "_PART", 100_000)
    factories = {
        **transport_registry._factories,
        "s3": lambda: objects.ObjectTransport(sleep=lambda _: None),
    }
    monkeypatch.setattr(transport_registry, "_factories", factories)
    with Cache(root=tmp_path / "cache", offline=False) as cache:
        yield cache


# spec: C5.5
def test_an_object_is_read_in_parts_and_anonymously(server, cache):
    server.serve("/winds/2020/a.nc", DATA)
    entry = cache.fetch("s3://winds/2020/a.nc")
    assert entry.path.read_bytes() == DATA
    assert entry.manifest.etag == '"v1"'
    assert entry.manifest.sha256_content == sha256_bytes(DATA)
    asked = server.asked("/winds/2020/a.nc")
    assert server.commands == ["HEAD /winds/2020/a.nc"] + ["GET /winds/2020/a.nc"] * 3
    assert [headers.get("range") for headers in asked[1:]] == [
        "bytes=0-99999",
        "bytes=100000-199999",
        "bytes=200000-299999",
    ]
    assert all(headers["if-match"] == '"v1"' for headers in asked[1:])
    assert not any("authorization" in headers for headers in asked)


# spec: C5.5
def test_credentials_of_the_environment_sign_and_are_seen_nowhere(server, cache, monkeypatch, tmp_path):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY_ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    server.serve("/winds/a.nc", DATA)
    cache.fetch("s3://winds/a.nc")
    assert KEY_ID in server.asked("/winds/a.nc")[0]["authorization"]
    body = f"<Error><AWSAccessKeyId>{KEY_ID}</AWSAccessKeyId></Error>".encode()
    server.faults["/winds/b.nc"].extend([lambda handler: handler.answer(403, {}, body)] * 3)
    with pytest.raises(AuthError, match="403 Forbidden") as caught:
        cache.fetch("s3://winds/b.nc")
    written = [path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file()]
    for secret in (KEY_ID, SECRET):
        assert secret not in repr(caught.value) + str(caught.value.__dict__) + "".join(written)


def test_a_range_an_empty_object_and_a_missing_one(server, cache):
    server.serve("/winds/a.nc", DATA)
    entry = cache.fetch(range_keyed_url("s3://winds/a.nc", 1000, 150_000))
    assert entry.path.read_bytes() == DATA[1000:150_001]
    with pytest.raises(TransportError, match="ends after the object does"):
        cache.fetch(range_keyed_url("s3://winds/a.nc", 0, 300_000))
    server.serve("/winds/empty", b"")
    assert cache.fetch("s3://winds/empty").path.read_bytes() == b""
    with pytest.raises(SourceNotFound, match="s3://winds/none"):
        cache.fetch("s3://winds/none")


def test_an_unchanged_object_is_not_fetched_again(server, cache):
    server.serve("/winds/a.nc", DATA)
    entry = cache.fetch("s3://winds/a.nc")
    meta = cache.store.root / "v1/meta" / f"{entry.key}.json"
    meta.write_text(meta.read_text().replace(entry.manifest.fetched_at, "2020-01-01T00:00:00Z"))
    server.commands.clear()
    assert cache.fetch("s3://winds/a.nc", temporal=FilePeriod(end=None)).status == "not_modified"
    assert server.commands == ["HEAD /winds/a.nc"]


# spec: C5.5
def test_an_object_that_changes_between_its_parts_is_read_again_whole(server, cache):
    new = bytes(reversed(DATA))
    server.serve("/winds/a.nc", DATA)
    server.faults["/winds/a.nc"].extend([lambda _: False] * 2)
    server.faults["/winds/a.nc"].append(lambda _: server.serve("/winds/a.nc", new, '"v2"') == "")
    entry = cache.fetch("s3://winds/a.nc")
    assert entry.path.read_bytes() == new
    assert entry.manifest.etag == '"v2"'


def test_trouble_is_passing_and_the_transfer_goes_on_where_it_stopped(server, cache):
    server.serve("/winds/a.nc", DATA)
    server.faults["/winds/a.nc"].extend([lambda _: False] * 2)
    server.faults["/winds/a.nc"].append(lambda handler: handler.answer(503))
    assert cache.fetch("s3://winds/a.nc").path.read_bytes() == DATA
    ranges = [headers.get("range", "head") for headers in server.asked("/winds/a.nc")]
    assert ranges == [
        "head",
        "bytes=0-99999",
        "bytes=100000-199999",
        "head",
        "bytes=100000-199999",
        "bytes=200000-299999",
    ]
    server.faults["/winds/b.nc"].extend([lambda handler: handler.answer(500)] * 9)
    with pytest.raises(TransportError, match=r"500.*5 attempts"):
        cache.fetch("s3://winds/b.nc")


@pytest.mark.parametrize("scheme", ["s3", "gs", "az"])
def test_each_cloud_opens_anonymously_without_credentials(cache, monkeypatch, scheme, tmp_path):
    from earthsciio.cache.transports.objects import _open_store

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    assert "skip_signature" in repr(_open_store(scheme, "bucket").config)


def test_without_obstore_the_error_names_the_extra(tmp_path, monkeypatch):
    real = builtins.__import__

    def missing(name, *arguments, **keywords):
        if name.partition(".")[0] == "obstore":
            raise ImportError(name)
        return real(name, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", missing)
    with (
        Cache(root=tmp_path, offline=False) as cache,
        pytest.raises(Unsupported, match=r"earthsci-forcing\[cloud\]"),
    ):
        cache.fetch("s3://winds/a.nc")
