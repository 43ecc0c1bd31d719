"""A training asked from outside."""

from __future__ import annotations

from luxmeter.train.callbacks.callback import Callback


class Control(Callback):
    """Listens."""

    priority = 95

    def after_train(self, trainer: object) -> None:
        """To be written."""
