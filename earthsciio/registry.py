"""Names to factories: how formats, transports and stores are found, and how third parties add theirs.

A registry maps a name to a callable that builds the thing. Built-in factories import what they need only
when called, so that a registry may list a back end whose library isn't installed. Registering a name again
replaces it: an application may put its own transport in front of ours. Safe from any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from .errors import BackendNotRegistered
from .forks import new_lock

__all__ = ["Registry"]

T = TypeVar("T")


class Registry(Generic[T]):
    """A named set of factories of one kind.

    Parameters
    ----------
    kind : str
        What is registered, for error texts: ``"format"``, ``"transport"``, ``"store"``.

    Examples
    --------
    >>> shapes = Registry("shape")
    >>> shapes.register("pair", lambda left, right: (left, right))
    >>> shapes.create("pair", 1, right=2)
    (1, 2)
    >>> shapes.names()
    ('pair',)
    >>> "pear" in shapes
    False
    """

    __slots__ = ("__weakref__", "_factories", "_lock", "kind")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._factories: dict[str, Callable[..., T]] = {}
        self._lock = new_lock(self)

    def register(self, name: str, factory: Callable[..., T]) -> None:
        """Make ``factory`` the one that builds ``name``, replacing an earlier one.

        Parameters
        ----------
        name : str
            Non-empty.
        factory : callable
            Called by :meth:`create` with the arguments given there.

        Raises
        ------
        ValueError
            If ``name`` is empty.
        TypeError
            If ``factory`` can't be called.
        """
        if not name:
            raise ValueError(f"a {self.kind} needs a name")
        if not callable(factory):
            raise TypeError(f"the factory of {self.kind} {name!r} can't be called: {factory!r}")
        with self._lock:
            self._factories[name] = factory

    def get(self, name: str) -> Callable[..., T]:
        """Return the factory of ``name``.

        Raises
        ------
        BackendNotRegistered
            If nobody registered ``name``; the text suggests the nearest name there is.
        """
        with self._lock:
            factory = self._factories.get(name)
        if factory is None:
            raise self._unknown(name)
        return factory

    def create(self, name: str, /, *args: Any, **kwargs: Any) -> T:
        """Build ``name`` with the given arguments.

        Raises
        ------
        BackendNotRegistered
            If nobody registered ``name``.
        """
        return self.get(name)(*args, **kwargs)

    def names(self) -> tuple[str, ...]:
        """Return the registered names, sorted."""
        with self._lock:
            return tuple(sorted(self._factories))

    def __contains__(self, name: object) -> bool:
        with self._lock:
            return name in self._factories

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __repr__(self) -> str:
        return f"Registry({self.kind!r}: {', '.join(self.names())})"

    def _unknown(self, name: str) -> BackendNotRegistered:
        import difflib

        names = self.names()
        by_folded = {known.casefold(): known for known in names}
        near = difflib.get_close_matches(str(name).casefold(), by_folded, n=1, cutoff=0.5)
        suggestion = f"Did you mean {by_folded[near[0]]!r}? " if near else ""
        return BackendNotRegistered(
            f"no {self.kind} named {name!r} is registered",
            hint=f"{suggestion}Registered: {', '.join(names) or 'none'}",
        )
