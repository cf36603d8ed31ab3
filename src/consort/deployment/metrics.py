"""Figures of a running server, in the text format of Prometheus.

They are sums and counts: names, data and scores of clients are not among them.
"""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from consort.core.messages import Call
from consort.core.row import Row
from consort.deployment.logs import kind_of
from consort.deployment.status_file import StatusFile
from consort.errors import ClientFailed
from consort.run.observer import Observer


class Family(NamedTuple):
    """What one name means."""

    kind: Literal["counter", "gauge"]
    help: str
    label: str = ""
    """What its series differ in."""


FAMILIES: Mapping[str, Family] = {
    "consort_rounds_planned": Family("gauge", "Rounds of the run."),
    "consort_rounds_done": Family("gauge", "Rounds that are finished and saved."),
    "consort_round_seconds_total": Family("counter", "Time of rounds, without evaluations."),
    "consort_clients": Family("gauge", "Clients of the run, by state.", "state"),
    "consort_clients_connected": Family("gauge", "Clients heard of in the last 15 seconds."),
    "consort_replies_total": Family("counter", "Replies, failures included.", "method"),
    "consort_failures_total": Family("counter", "Clients a round went on without.", "kind"),
    "consort_bytes_down_total": Family("counter", "Bytes of tensors sent to clients.", "role"),
    "consort_bytes_up_total": Family("counter", "Bytes of tensors sent by clients.", "role"),
    "consort_gateway_refused_total": Family("counter", "Requests refused at the port.", "reason"),
    "consort_peak_memory_bytes": Family("gauge", "Largest resident memory of the server so far."),
    "consort_uptime_seconds": Family("gauge", "Time since the server was started."),
}
_MOST_SERIES = 100  # of one name: roles are sent by clients, who could invent any number of them
_LONGEST = 100  # characters of a label
_OTHERS = "others"


class Counters:
    """Numbers by name and label; its methods may be called from several threads.

    Examples:
        >>> from consort.deployment.metrics import Counters
        >>> counters = Counters()
        >>> counters.refused("rate")
        >>> print(counters.text().splitlines()[2])
        consort_gateway_refused_total{reason="rate"} 1
    """

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._lock = threading.Lock()
        self._series: dict[str, dict[str, float]] = {}

    def add(self, name: str, amount: float = 1, **label: str) -> None:
        """Adds to a number.

        Args:
            name: One of `FAMILIES`.
            amount: What is added.
            label: The label of the family and its value.
        """
        with self._lock:
            series, key = self._place(name, label)
            series[key] = series.get(key, 0) + amount

    def set(self, name: str, value: float, **label: str) -> None:
        """Replaces a number.

        Args:
            name: One of `FAMILIES`.
            value: The new value.
            label: The label of the family and its value.
        """
        with self._lock:
            series, key = self._place(name, label)
            series[key] = value

    def replace(self, name: str, values: Mapping[str, float]) -> None:
        """Replaces all numbers of a name.

        Args:
            name: One of `FAMILIES` that has a label.
            values: The new value of each label.
        """
        with self._lock:
            self._series.pop(name, None)
        for label, value in values.items():
            self.set(name, value, **{FAMILIES[name].label: label})

    def refused(self, reason: str) -> None:
        """Counts a request that was refused at the port, by the `reason`."""
        self.add("consort_gateway_refused_total", reason=reason)

    def text(self) -> str:
        """All numbers, in the text format of Prometheus."""
        self.set("consort_uptime_seconds", time.monotonic() - self._start)
        self.set("consort_peak_memory_bytes", _peak_memory())
        with self._lock:
            return "".join(
                _family(name, family, self._series[name])
                for name, family in FAMILIES.items()
                if name in self._series
            )

    def _place(self, name: str, label: Mapping[str, str]) -> tuple[dict[str, float], str]:
        family = FAMILIES[name]
        series = self._series.setdefault(name, {})
        key = label[family.label][:_LONGEST] if family.label else ""
        return series, key if key in series or len(series) < _MOST_SERIES else _OTHERS


def _family(name: str, family: Family, series: Mapping[str, float]) -> str:
    lines = [f"# HELP {name} {family.help}", f"# TYPE {name} {family.kind}"]
    for key, value in series.items():
        label = f'{{{family.label}="{_escaped(key)}"}}' if family.label else ""
        lines.append(f"{name}{label} {value:.15g}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _peak_memory() -> int:
    """The largest resident memory of this process so far, in bytes (Linux reports KiB)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def figures(counters: Counters, status: StatusFile) -> str:
    """All numbers as text, with what the clients are doing now.

    Args:
        counters: The numbers.
        status: The status of the server.
    """
    states, connected = status.states()
    counters.replace("consort_clients", states)
    counters.set("consort_clients_connected", connected)
    return counters.text()


class MetricsObserver(Observer):
    """Counts what a run tells.

    Args:
        counters: Where the numbers go.
    """

    def __init__(self, counters: Counters) -> None:
        self.counters = counters

    def started(self, first: int, rounds: int) -> None:
        """Sets the number of rounds, and of those that are done."""
        self.counters.set("consort_rounds_planned", rounds)
        self.counters.set("consort_rounds_done", first - 1)

    def answered(self, call: Call) -> None:
        """Counts the reply by the method that was called."""
        self.counters.add("consort_replies_total", method=call.method)

    def measured(self, round: int, rows: Sequence[Row]) -> None:
        """Adds the bytes and the time of a round."""
        for row in rows:
            if row.metric in ("bytes_down", "bytes_up"):
                self.counters.add(f"consort_{row.metric}_total", row.value, role=row.part)
            elif row.metric == "seconds" and not row.client:
                self.counters.add("consort_round_seconds_total", row.value)
        self.counters.set("consort_rounds_done", round)

    def failed(self, error: ClientFailed) -> None:
        """Counts the failure by its kind."""
        self.counters.add("consort_failures_total", kind=kind_of(error))
