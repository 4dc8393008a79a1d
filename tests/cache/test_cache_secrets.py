"""Credentials reach the host they are for, and nothing else: no other host, file, log, error, or repr."""

import logging
import pickle
import traceback

import pytest

from earthsciio.cache import Cache, NetrcAuth, StaticHeaderAuth, cache_key
from earthsciio.cache.auth import basic_of_url, credentials_for, may_follow, without_userinfo
from earthsciio.cache.redact import redact
from earthsciio.errors import AuthError, CacheMiss, FetchError

SECRET = "s3cr3t-t0ken"
DATA = b"winds"


@pytest.fixture
def open_cache(tmp_path):
    """Return a function that makes caches, which are closed at the end."""
    caches = []

    def make(**options) -> Cache:
        caches.append(Cache(root=tmp_path / "cache", offline=False, **options))
        return caches[-1]

    yield make
    for cache in caches:
        cache.close()


@pytest.fixture
def everything_said(tmp_path, caplog):
    """Collect all that was written or logged; call it at the end."""
    caplog.set_level(logging.DEBUG)

    def collect(*more: object) -> str:
        texts = [
            path.read_text(errors="replace") for path in (tmp_path / "cache").rglob("*") if path.is_file()
        ]
        texts += [str(path) for path in (tmp_path / "cache").rglob("*")]
        texts += [caplog.text, *(repr(thing) + str(thing) for thing in more)]
        texts += [str(record.args) + record.getMessage() for record in caplog.records]
        for thing in more:
            if isinstance(thing, BaseException):
                texts += traceback.format_exception(thing)
                texts.append(repr(thing.__dict__))
                linked = thing
                while linked := linked.__context__ or linked.__cause__:
                    texts.append(repr(linked))
        return "\n".join(texts)

    return collect


def test_a_bearer_token_is_sent_and_seen_nowhere(server, open_cache, everything_said):
    auth = StaticHeaderAuth.bearer(SECRET)
    cache = open_cache(auth={"portal": auth})
    entry = cache.fetch(server.serve("/a.nc", DATA), auth_realm="portal")
    assert server.asked("/a.nc")[0]["authorization"] == f"Bearer {SECRET}"
    assert entry.manifest.auth_realm == "portal"
    said = everything_said(auth, cache, entry)
    assert SECRET not in said
    assert "portal" in said


def test_a_header_realm_and_a_single_auth_for_all_realms(server, open_cache):
    url = server.serve("/a.nc", DATA)
    open_cache(auth=StaticHeaderAuth.header("X-Api-Key", SECRET)).fetch(url, auth_realm="any")
    assert server.asked("/a.nc")[0]["x-api-key"] == SECRET
    open_cache(auth={"other": StaticHeaderAuth.bearer(SECRET)}).fetch(server.serve("/b.nc", DATA))
    assert "authorization" not in server.asked("/b.nc")[0]


@pytest.mark.parametrize("status", [401, 403, 404, 500])
def test_errors_keep_credentials_to_themselves(server, open_cache, everything_said, status, monkeypatch):
    monkeypatch.setattr("earthsciio.cache.transports.retry.RetryPolicy.pause", lambda self, failures: 0.0)
    server.faults["/a.nc"].extend([lambda handler: handler.answer(status, {}, b"no")] * 9)
    cache = open_cache(auth={"portal": StaticHeaderAuth.bearer(SECRET)})
    url = server.url(f"/a.nc?day=3&token={SECRET}").replace("http://", f"http://me:{SECRET}@")
    with pytest.raises(FetchError) as caught:
        cache.fetch(url, auth_realm="portal", mirrors=[url + "&mirror=1"])
    said = everything_said(caught.value, pickle.loads(pickle.dumps(caught.value)))
    assert SECRET not in said
    assert "day=3" in said


# spec: C1.4
def test_credentials_inside_a_url_are_used_but_written_nowhere(server, open_cache, everything_said):
    server.serve("/a.nc", DATA)
    url = server.url(f"/a.nc?X-Amz-Signature={SECRET}&x=1").replace("http://", f"http://me:{SECRET}@")
    events = []
    cache = open_cache(listeners=[events.append])
    entry = cache.fetch(url)
    assert entry.key == cache_key(url)  # the key is that of the spelling, secret or not
    assert server.asked("/a.nc")[0]["authorization"] == "Basic bWU6czNjcjN0LXQwa2Vu"  # me:s3cr3t-t0ken
    assert entry.manifest.url == server.url("/a.nc?X-Amz-Signature=REDACTED&x=1").replace("//", "//REDACTED@")
    said = everything_said(entry, events, cache)
    assert SECRET not in said
    assert "x=1" in said
    offline = Cache(root=cache.store.root, offline=True)
    assert offline.fetch(url).status == "hit"
    with pytest.raises(CacheMiss) as caught:
        offline.fetch(url + "2")
    assert SECRET not in everything_said(caught.value)


def test_a_lost_connection_tells_no_secret(open_cache, everything_said, monkeypatch):
    monkeypatch.setattr("earthsciio.cache.transports.retry.RetryPolicy.pause", lambda self, failures: 0.0)
    with pytest.raises(FetchError) as caught:
        open_cache().fetch(f"http://me:{SECRET}@127.0.0.1:9/a.nc?api_key={SECRET}")
    assert SECRET not in everything_said(caught.value)


def test_a_credential_that_is_no_header_value_is_not_quoted(server, open_cache, everything_said):
    cache = open_cache(auth={"portal": StaticHeaderAuth.bearer(f"{SECRET}\nX-Evil: 1")})
    with pytest.raises(AuthError, match="no legal header") as caught:
        cache.fetch(server.serve("/a.nc", DATA), auth_realm="portal")
    assert SECRET not in everything_said(caught.value)


# -- other hosts -----------------------------------------------------------------------------------------


# spec: C5.4
def test_a_redirect_to_another_host_drops_the_credentials(server, open_cache):
    server.serve("/there.nc", DATA)
    elsewhere = server.url("/there.nc", host="localhost")
    server.faults["/a.nc"].append(lambda handler: handler.answer(302, {"Location": elsewhere}))
    url = server.url("/a.nc").replace("http://", "http://me:pw@")
    open_cache(auth={"r": StaticHeaderAuth.header("X-Api-Key", SECRET)}).fetch(url, auth_realm="r")
    there = server.asked("/there.nc")[0]
    assert there["host"].startswith("localhost")
    assert "authorization" not in there
    assert "x-api-key" not in there


def test_a_redirect_within_the_host_keeps_them(server, open_cache):
    server.serve("/there.nc", DATA)
    server.faults["/a.nc"].append(lambda handler: handler.answer(302, {"Location": "/there.nc"}))
    cache = open_cache(auth={"r": StaticHeaderAuth.bearer(SECRET)})
    cache.fetch(server.url("/a.nc"), auth_realm="r")
    assert server.asked("/there.nc")[0]["authorization"] == f"Bearer {SECRET}"
    server.faults["/b.nc"].append(lambda handler: handler.answer(302, {"Location": "/there.nc"}))
    cache.fetch(server.url("/b.nc").replace("http://", f"http://me:{SECRET}@"))
    assert server.asked("/there.nc")[1]["authorization"] == "Basic bWU6czNjcjN0LXQwa2Vu"


def test_a_redirect_to_a_login_host_and_back_uses_each_hosts_own(server, open_cache, tmp_path, monkeypatch):
    """The dance of the big portals: data host, login host (netrc), data host with a cookie."""
    server.serve("/data.nc", DATA)
    login = server.url("/login", host="localhost")
    back = server.url("/data.nc")
    server.faults["/data.nc"].append(lambda handler: handler.answer(302, {"Location": login}))
    server.faults["/login"].append(
        lambda handler: handler.answer(302, {"Location": back, "Set-Cookie": "session=yes; Path=/"})
    )
    netrc = tmp_path / "netrc"
    netrc.write_text(f"machine localhost login me password {SECRET}\n")
    monkeypatch.setenv("NETRC", str(netrc))
    open_cache().fetch(server.url("/data.nc"))
    assert "authorization" not in server.asked("/data.nc")[0]
    assert server.asked("/login")[0]["authorization"] == "Basic bWU6czNjcjN0LXQwa2Vu"
    assert "authorization" not in server.asked("/data.nc")[1]


# spec: C5.4
def test_a_mirror_on_another_host_gets_no_credentials_unless_they_name_it(server, open_cache):
    server.serve("/b.nc", DATA)
    mirror = server.url("/b.nc", host="localhost")
    for hosts, sent in ((None, False), (["localhost"], True)):
        cache = open_cache(auth={"r": StaticHeaderAuth.bearer(SECRET, hosts=hosts)})
        cache.fetch(server.url(f"/missing-{sent}.nc"), auth_realm="r", mirrors=[mirror])
        assert ("authorization" in server.asked("/b.nc")[-1]) is sent
        assert ("authorization" in server.asked(f"/missing-{sent}.nc")[-1]) is not sent


# spec: C5.4
@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("https://h/a", "https://h/b?c", True),
        ("https://h/a", "https://h:443/b", True),
        ("https://H/a", "https://h/b", True),
        ("https://h/a", "https://h:8443/b", False),
        ("https://h/a", "http://h/b", False),
        ("http://h/a", "https://h/b", True),
        ("http://h:8080/a", "https://h/b", False),
        ("http://h/a", "https://h:8443/b", False),
        ("https://h.org/a", "https://h.org.evil.com/a", False),
    ],
)
def test_credentials_follow_to_the_same_origin_or_its_secure_twin(one, other, same):
    assert may_follow(one, other) is same
    auth = StaticHeaderAuth.bearer(SECRET)
    assert bool(credentials_for(other, home=one, auth=auth)) is same


# -- netrc -----------------------------------------------------------------------------------------------


# spec: C5.4
def test_netrc_is_used_by_host_and_a_realm_goes_before_it(server, open_cache, tmp_path, monkeypatch):
    netrc = tmp_path / "netrc"
    netrc.write_text(f"machine 127.0.0.1 login me password {SECRET}\n")
    monkeypatch.setenv("NETRC", str(netrc))
    cache = open_cache(auth={"r": StaticHeaderAuth.bearer("other")})
    cache.fetch(server.serve("/a.nc", DATA))
    assert server.asked("/a.nc")[0]["authorization"] == "Basic bWU6czNjcjN0LXQwa2Vu"
    cache.fetch(server.serve("/b.nc", DATA), auth_realm="r")
    assert server.asked("/b.nc")[0]["authorization"] == "Bearer other"


def test_a_realm_may_have_its_own_netrc_file(server, open_cache, tmp_path):
    netrc = tmp_path / "other-netrc"
    netrc.write_text(f"machine 127.0.0.1 login me password {SECRET}\n")
    auth = NetrcAuth(netrc)
    open_cache(auth={"r": auth}).fetch(server.serve("/a.nc", DATA), auth_realm="r")
    assert server.asked("/a.nc")[0]["authorization"] == "Basic bWU6czNjcjN0LXQwa2Vu"
    assert repr(auth) == f"NetrcAuth({str(netrc)!r})"


def test_a_broken_netrc_is_told_of_without_quoting_it(
    server, open_cache, tmp_path, monkeypatch, everything_said
):
    netrc = tmp_path / "netrc"
    netrc.write_text(f"machine 127.0.0.1 login me passwort {SECRET}\n")
    with pytest.raises(AuthError, match="netrc") as caught:
        open_cache(auth={"r": NetrcAuth(netrc)}).fetch(server.serve("/a.nc", DATA), auth_realm="r")
    with pytest.raises(AuthError, match="No such file"):
        open_cache(auth={"r": NetrcAuth(tmp_path / "none")}).fetch(server.url("/a.nc"), auth_realm="r")
    monkeypatch.setenv("NETRC", str(netrc))
    assert open_cache().fetch(server.url("/a.nc")).status == "downloaded"
    said = everything_said(caught.value)
    assert "can't be read (line 1)" in said
    assert SECRET not in said


def test_a_refusal_says_which_realm_lacks_credentials(server, open_cache):
    server.faults["/a.nc"].extend([lambda handler: handler.answer(401)] * 2)
    with pytest.raises(AuthError, match="No credentials are configured for realm 'portal'") as caught:
        open_cache().fetch(server.url("/a.nc"), auth_realm="portal")
    assert isinstance(caught.value, PermissionError)


# -- redaction -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "https://me:SECRET@h/a.nc",
        "https://SECRET@h/a.nc",
        "https://h/a?X-Amz-Signature=SECRET&b=1",
        "https://h/a?X-Amz-Credential=SECRET%2F2024&b=1",
        "https://h/a?X-Amz-Security-Token=SECRET",
        "https://h/a?AWSAccessKeyId=SECRET&Signature=SECRET",
        "https://h/a?sv=2020&sig=SECRET",
        "https://h/a?api_key=SECRET",
        "https://h/a?apikey=SECRET;b=2",
        "https://h/a?key=SECRET",
        "https://h/a#access_token=SECRET",
        "https://h/a?PASSWORD=SECRET",
        "https://h/a?GoogleAccessId=SECRET",
        "/path?token=SECRET (Caused by https://u:SECRET@h/b?auth=SECRET)",
    ],
)
def test_redaction_finds_every_kind_of_secret(text):
    redacted = redact(text)
    assert "SECRET" not in redacted
    assert "REDACTED" in redacted
    assert redact(redacted) == redacted


@pytest.mark.parametrize(
    "text",
    [
        "https://h/a.nc?date=2020-01-01&var=u&level=850",
        "https://h/a.nc#bytes=0-99",
        "plain text, a@b",
        "s3://bucket/key",
    ],
)
def test_redaction_leaves_the_rest_alone(text):
    assert redact(text) == text


def test_userinfo_is_decoded_and_removed():
    assert basic_of_url("https://me:p%40w@h/a") == {"Authorization": "Basic bWU6cEB3"}  # me:p@w
    assert basic_of_url("https://h/a") == {}
    assert without_userinfo("https://me:pw@h:8080/a?b=c") == "https://h:8080/a?b=c"
