"""PURE. How long a lease may be trusted, and how long to hold back after losing leadership.

A lease is trusted from the moment its last successful renewal was *sent*: the server counted its
TTL from some later moment, so this deadline, less a margin for clocks that run apart, is never
after the server's. The moment the answer came is of no use: the answer may have waited for hours
in a process that was stopped.
"""

from __future__ import annotations

from dataclasses import dataclass

RENEWALS_PER_TTL = 6
MARGIN_OF_TTL = 0.1


@dataclass(frozen=True, slots=True)
class Timing:
    """The times of an election, in seconds. 0 stands for the default that follows from the TTL.

    Attributes:
        lease_ttl_s: what the lease is asked for; etcd grants no less than 2 s.
        renew_interval_s: from one renewal to the next; a sixth of the TTL by default.
        margin_s: how long before the lease can run out a leader stops trusting it; a tenth of it.
        call_timeout_s: the longest call that leadership depends on; a sixth of the TTL by default.
        backoff_first_s: hold back this long after the first lost leadership, then twice as long.
        backoff_max_s: hold back no longer than this.
        stable_after_s: a leadership that lasted this long makes earlier losses forgotten.
    """

    lease_ttl_s: float = 5.0
    renew_interval_s: float = 0.0
    margin_s: float = 0.0
    call_timeout_s: float = 0.0
    backoff_first_s: float = 2.0
    backoff_max_s: float = 30.0
    stable_after_s: float = 60.0

    def __post_init__(self) -> None:
        """Fill in the defaults and refuse what cannot work.

        Raises:
            ValueError: the lease would be given up between two timely renewals.
        """
        sixth_s = self.lease_ttl_s / RENEWALS_PER_TTL
        for name, default_s in (
            ("renew_interval_s", sixth_s),
            ("margin_s", self.lease_ttl_s * MARGIN_OF_TTL),
            ("call_timeout_s", sixth_s),
        ):
            if getattr(self, name) == 0:
                object.__setattr__(self, name, default_s)
        if self.call_timeout_s > sixth_s:
            raise ValueError(
                f"call_timeout_s {self.call_timeout_s} is more than a sixth of the lease TTL"
            )
        if not 0 < self.renew_interval_s + self.call_timeout_s < self.lease_ttl_s - self.margin_s:
            raise ValueError(
                f"a lease of {self.lease_ttl_s} s does not outlast a renewal"
                f" ({self.renew_interval_s} + {self.call_timeout_s} s) and its margin"
            )


def trusted_until_s(sent_s: float, ttl_s: float, margin_s: float) -> float:
    """Until when a lease may be trusted whose renewal (or grant) was sent at `sent_s`."""
    return sent_s + ttl_s - margin_s


def backoff_s(losses: int, jitter: float, timing: Timing) -> float:
    """How long to hold back after the `losses`-th loss in a row; `jitter` in [0, 1) spreads it.

    At least half of the full time, so that another candidate has the time to take over.
    """
    full_s = min(timing.backoff_max_s, timing.backoff_first_s * 2.0 ** min(losses - 1, 30))
    return full_s * (0.5 + 0.5 * jitter)
