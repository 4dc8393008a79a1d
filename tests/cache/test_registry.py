"""Registries find back ends by name and help with a wrong one."""

import pytest

from earthsciio.errors import BackendNotRegistered
from earthsciio.registry import Registry


@pytest.fixture
def shapes() -> Registry[tuple[object, ...]]:
    registry: Registry[tuple[object, ...]] = Registry("shape")
    registry.register("pair", lambda left, right: (left, right))
    registry.register("single", lambda one: (one,))
    return registry


def test_create_builds_with_the_given_arguments(shapes):
    assert shapes.create("pair", 1, right=2) == (1, 2)
    assert shapes.names() == ("pair", "single")
    assert "pair" in shapes
    assert "triple" not in shapes
    assert list(shapes) == ["pair", "single"]


# spec: R1.3
def test_unknown_name_is_a_lookup_error_that_suggests_the_nearest(shapes):
    with pytest.raises(BackendNotRegistered, match=r"no shape named 'Piar'.*Did you mean 'pair'") as caught:
        shapes.create("Piar")
    assert isinstance(caught.value, LookupError)


def test_unknown_name_without_neighbour_lists_what_there_is(shapes):
    with pytest.raises(BackendNotRegistered, match="Registered: pair, single") as caught:
        shapes.create("zzz")
    assert "Did you mean" not in str(caught.value)
    with pytest.raises(BackendNotRegistered, match="Registered: none"):
        Registry("shape").create("x")


# spec: R1.3
def test_later_registration_replaces_the_earlier(shapes):
    shapes.register("single", lambda one: (one, one))
    assert shapes.create("single", 3) == (3, 3)


def test_a_factory_must_be_callable_and_named(shapes):
    with pytest.raises(TypeError, match="can't be called"):
        shapes.register("bad", 3)
    with pytest.raises(ValueError, match="needs a name"):
        shapes.register("", tuple)
