"""Several processes that train together: who is there, what they tell each other, and what is said when one of them fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

from luxmeter.doors import door

if TYPE_CHECKING:
    from luxmeter.train.dist.agreement import agree as agree
    from luxmeter.train.dist.collectives import all_reduce as all_reduce
    from luxmeter.train.dist.collectives import barrier as barrier
    from luxmeter.train.dist.collectives import broadcast as broadcast
    from luxmeter.train.dist.collectives import broadcast_object as broadcast_object
    from luxmeter.train.dist.collectives import gather_objects as gather_objects
    from luxmeter.train.dist.collectives import main_only as main_only
    from luxmeter.train.dist.failing import abort as abort
    from luxmeter.train.dist.failing import end_failed as end_failed
    from luxmeter.train.dist.failing import is_echo as is_echo
    from luxmeter.train.dist.failing import tell_failure as tell_failure
    from luxmeter.train.dist.failing import who_failed as who_failed
    from luxmeter.train.dist.group import Group as Group
    from luxmeter.train.dist.group import current_group as current_group
    from luxmeter.train.dist.group import ensure_group as ensure_group
    from luxmeter.train.dist.meeting import note as note
    from luxmeter.train.dist.meeting import recall as recall

__getattr__, __dir__, __all__ = door(
    __name__,
    {
        "agree": "agreement",
        "all_reduce": "collectives",
        "barrier": "collectives",
        "broadcast": "collectives",
        "broadcast_object": "collectives",
        "gather_objects": "collectives",
        "main_only": "collectives",
        "abort": "failing",
        "end_failed": "failing",
        "is_echo": "failing",
        "tell_failure": "failing",
        "who_failed": "failing",
        "Group": "group",
        "current_group": "group",
        "ensure_group": "group",
        "note": "meeting",
        "recall": "meeting",
    },
)
