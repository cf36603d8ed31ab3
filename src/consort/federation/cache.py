"""A cache of clients' data with a bounded size."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from consort.data.examples import Splits

KEPT_BYTES = 2 << 30
"""Beyond this size, the least recently used data are released."""


class DataCache:
    """The data of clients by name."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Splits] = OrderedDict()
        self._bytes = 0

    def get(self, client: str, load: Callable[[], Splits]) -> Splits:
        """The data of a client, from memory or loaded now.

        Args:
            client: The name of the client.
            load: Loads its data.
        """
        if client not in self._kept:
            self._kept[client] = load()
            self._bytes += _size(self._kept[client])
            while self._bytes > KEPT_BYTES and len(self._kept) > 1:
                self._bytes -= _size(self._kept.popitem(last=False)[1])
        self._kept.move_to_end(client)
        return self._kept[client]


def _size(splits: Splits) -> int:
    return sum(part.nbytes for part in splits.parts)
