"""One replaced name: where it is, what stood there, what stands there now. Put in and taken out exactly."""

from __future__ import annotations

import weakref
from typing import Any, Final

ABSENT: Final = object()  # the name was not there itself (a class only inherited it)


class Binding:
    """A name in a module's namespace, on a class, on a function (`__defaults__`) or in an instance."""

    __slots__ = ("_instance", "_owner", "after", "attribute", "before")

    def __init__(
        self, owner: Any, attribute: str, before: Any, after: Any, *, instance: bool = False
    ) -> None:
        # An instance is the user's: it must not live longer for being traced.
        self._owner = weakref.ref(owner) if instance else owner
        self._instance = instance
        self.attribute, self.before, self.after = attribute, before, after

    @property
    def owner(self) -> Any:
        """None when it was an instance that is gone."""
        return self._owner() if self._instance else self._owner

    def put(self) -> bool:
        """Bind the stand-in, unless someone bound something else meanwhile: then False, and theirs stays."""
        return self._swap(self.before, self.after)

    def take(self) -> bool:
        """Bind what stood there before. False when someone else had replaced the stand-in: theirs stays."""
        return self._swap(self.after, self.before)

    def now(self) -> Any:
        """What the name is bound to at the moment."""
        owner = self.owner
        found: Any = (owner if type(owner) is dict else vars(owner)).get(self.attribute, ABSENT)
        return found

    def _swap(self, here: Any, there: Any) -> bool:
        owner = self.owner
        if owner is None:
            return True
        attribute = self.attribute
        if type(owner) is dict:
            if owner.get(attribute, ABSENT) is not here:
                return False
            owner[attribute] = there
            return True
        if attribute == "__defaults__":
            if owner.__defaults__ is not here:
                return False
            owner.__defaults__ = there
            return True
        if vars(owner).get(attribute, ABSENT) is not here:
            return False
        if self._instance:
            vars(owner)[attribute] = there
        elif there is ABSENT:
            delattr(owner, attribute)
        else:
            setattr(owner, attribute, there)
        return True
