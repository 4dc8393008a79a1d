"""The error tree: what a plain caller may catch, what the text says, and what survives the way home."""

import inspect
import pickle

import pytest

from earthsciio import errors
from earthsciio.errors import CacheMiss, EarthSciIOError, EarthSciIOWarning


def tree(root=EarthSciIOError):
    for child in root.__subclasses__():
        yield child
        yield from tree(child)


CLASSES = sorted(
    {EarthSciIOError, *(c for c in tree() if c.__module__ == errors.__name__)}, key=lambda c: c.__name__
)
#: What somebody who knows nothing of this library would write after ``except``.
BUILTINS = {
    "AuthError": PermissionError,
    "BackendNotRegistered": LookupError,
    "CacheMiss": FileNotFoundError,
    "CacheStoreError": OSError,
    "Cancelled": RuntimeError,
    "DeclarationError": ValueError,
    "DecodeError": OSError,
    "EarthSciIOError": Exception,
    "FetchError": OSError,
    "FileFormatError": OSError,
    "GroupStateError": RuntimeError,
    "IntegrityError": OSError,
    "MissingFile": FileNotFoundError,
    "NotATimeAxis": ValueError,
    "OfflineError": OSError,
    "OrderError": ValueError,
    "RecordNotFound": IndexError,
    "SelectionError": ValueError,
    "SelectionRangeError": IndexError,
    "SourceNotDeclared": KeyError,
    "SourceNotFound": FileNotFoundError,
    "SourceUnclear": FileNotFoundError,
    "TimeAxisError": ValueError,
    "TimeBeforeStart": ValueError,
    "TimePastEnd": IndexError,
    "TooLarge": MemoryError,
    "TransportError": OSError,
    "UnknownReaderOption": ValueError,
    "Unsupported": NotImplementedError,
    "VariableNotFound": KeyError,
}
ABOUT = {"file": "/d/a.nc", "variable": "u", "epoch": 7, "chunk": (0, 3), "length": 5, "selector": [9]}


def make(cls, **context):
    return cls("https://h/a.nc", "0" * 64) if cls is CacheMiss else cls("it went wrong", **context)


def test_every_class_of_the_tree_is_public_in_its_module():
    assert {c.__name__ for c in CLASSES} | {"EarthSciIOWarning"} == set(errors.__all__)
    assert {c.__name__ for c in CLASSES} == set(BUILTINS)
    assert issubclass(EarthSciIOWarning, UserWarning)


# spec: P5.1
@pytest.mark.parametrize("cls", CLASSES)
def test_an_error_is_also_the_builtin_a_plain_caller_would_catch(cls):
    assert issubclass(cls, BUILTINS[cls.__name__])
    assert issubclass(cls, EarthSciIOError)
    with pytest.raises(BUILTINS[cls.__name__]):
        raise make(cls)


# spec: P5.1
@pytest.mark.parametrize("cls", [c for c in CLASSES if c is not CacheMiss])
def test_an_error_keeps_what_it_is_about_and_says_so(cls):
    error = make(cls, **ABOUT)
    for name, value in ABOUT.items():
        assert getattr(error, name) == value
        assert f"{name}={value}" in str(error)
    assert str(error).startswith("it went wrong [")


# spec: P5.1
@pytest.mark.parametrize("cls", CLASSES)
def test_the_text_says_what_to_do(cls):
    error = make(cls)
    if cls not in (EarthSciIOError, errors.DeclarationError):
        assert error.hint
        assert str(error).endswith(f". {error.hint}")
    if cls is not CacheMiss:
        assert str(make(cls, hint="Turn it off and on again")) == "it went wrong. Turn it off and on again"


# spec: P5.1
@pytest.mark.parametrize("cls", CLASSES)
def test_an_error_survives_pickling_with_all_it_knows(cls):
    error = make(cls) if cls is CacheMiss else make(cls, hint="Do that", **ABOUT)
    error.add_note("fetched from https://h/a.nc")
    error.others = {"winds": make(errors.DecodeError, file="/d/b.nc")}
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(error, protocol))
        assert type(again) is cls
        assert str(again) == str(error)
        assert again.args == error.args
        assert again.context == error.context
        assert again.__notes__ == error.__notes__
        assert again.others["winds"].file == "/d/b.nc"
        for name in ("file", "variable", "epoch", "chunk", "hint"):
            assert getattr(again, name) == getattr(error, name)


def test_a_layer_above_may_still_say_which_file_it_was():
    error = errors.DecodeError("bad bytes", variable="u")
    error.file = "/d/a.nc"
    assert "file=/d/a.nc" in str(error)
    assert "file=/d/a.nc" in str(pickle.loads(pickle.dumps(error)))


def test_a_cache_miss_names_url_and_key_and_how_to_fill_the_cache():
    miss = CacheMiss("https://h/a.nc", "ab" * 32)
    assert (miss.resolved_url, miss.key) == ("https://h/a.nc", "ab" * 32)
    assert "https://h/a.nc" in str(miss)
    assert "earthsciio warm" in str(miss)


def test_every_class_says_in_its_docstring_what_it_is_for():
    for cls in (*CLASSES, EarthSciIOWarning):
        assert "__doc__" in vars(cls)
        assert inspect.getdoc(cls)
