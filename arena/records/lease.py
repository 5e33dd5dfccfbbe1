"""The lease of a run directory: at most one run writes there, whichever machine it is on.

A lease is a small file ``lease.<n>`` in the directory, created exclusively, which works on NFS, too. Its holder renews
it every ``RENEW_EVERY`` seconds. A lease is stale if its process is gone, or if another machine has not renewed it for
``EXPIRES`` seconds: the process that first creates ``lease.<n + 1>`` takes its place. Clocks of machines are not
compared.
"""

import contextlib
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

from arena.common.errors import ConfigError, GivenUpError
from arena.system.processes import birth_of

RENEW_EVERY = 2.0
"""Seconds between two renewals."""

EXPIRES = 10.0
"""Seconds without a renewal after which a lease of another machine is stale."""

POLL_EVERY = 0.2
"""Seconds between two reads of a lease of another machine."""

FILLED_WITHIN = 1.0
"""Seconds that a lease may be empty: it is created and filled in two steps."""

WRITTEN_BY = "is being written by"
"""Words before the holder in an error: what a sweep recognises a run by that another process writes."""


class Holder(NamedTuple):
    """Content of a lease.

    Attributes:
      token: random name of the lease.
      machine: identity of the machine and of its process ids.
      host: name of the machine.
      process: process id of rank 0.
      born: start time of that process, in the kernel's ticks since the machine's start.
      since: time when the lease was taken, by the holder's clock.
      job: number of the batch job, empty outside of one.
      renewals: count of renewals.
    """

    token: str
    machine: str
    host: str
    process: int
    born: int
    since: str
    job: str
    renewals: int

    @property
    def is_here(self) -> bool:
        """Whether it is a process of this machine."""
        return self.machine == _machine()


class Lease:
    """A lease held by this process.

    Attributes:
      path: path of the file.
    """

    def __init__(self, path: Path, holder: Holder) -> None:
        """Hold the lease that ``take`` has created."""
        self.path, self._holder = path, holder
        self._renewed = time.monotonic()
        self._lost = ""
        self._ending = threading.Event()
        self._renewing = threading.Lock()
        self._thread = threading.Thread(target=self._keep_renewing, name="lease", daemon=True)

    @classmethod
    def take(cls, directory: Path) -> "Lease":
        """Take the lease of a directory, which must exist, and renew it in a thread until ``release``.

        Raises:
          ConfigError: another process holds it; the message names it.
          OSError: the directory is not writable.
        """
        stale = check_is_free(directory)
        path = directory / f"lease.{max(_numbers(directory), default=0) + 1}"
        holder = _describe_this_process()
        try:
            with open(path, "x", encoding="utf-8") as file:
                file.write(_text(holder))
        except FileExistsError:  # another start was faster
            check_is_free(directory)
            raise ConfigError(f"{directory} {WRITTEN_BY} another start, which was quicker; try again") from None
        except OSError:
            path.unlink(missing_ok=True)
            raise
        try:
            # Two starts may have found it free simultaneously, and have chosen different numbers.
            check_is_free(directory, {*stale, holder.token})
        except ConfigError:
            path.unlink(missing_ok=True)
            raise
        lease = cls(path, holder)
        lease._thread.start()
        return lease

    def check(self) -> None:
        """Check that the lease is still held, before a write.

        Raises:
          LeaseLostError: another run has taken it, since this one was suspended or disconnected for too long.
        """
        if time.monotonic() - self._renewed > 2 * RENEW_EVERY:
            self._renew()
        if self._lost:
            raise LeaseLostError(self._lost)

    def release(self) -> None:
        """Stop renewing, and remove the file."""
        self._ending.set()
        self._thread.join()
        if not self._lost:
            self.path.unlink(missing_ok=True)

    def _keep_renewing(self) -> None:
        while not self._ending.wait(RENEW_EVERY):
            self._renew()

    def _renew(self) -> None:
        with self._renewing:
            self._holder = self._holder._replace(renewals=self._holder.renewals + 1)
            try:
                if _token_of(self.path) != self._holder.token:
                    self._lost = f"{self.path.parent}: another run has taken this directory; {_SUSPENDED}"
                    return
                # In place, so that it needs no space on a full disk.
                with open(self.path, "r+", encoding="utf-8") as file:
                    file.write(_text(self._holder))
            except OSError:  # the file system is temporarily unavailable: other writes fail too
                return
            self._renewed = time.monotonic()


class LeaseLostError(GivenUpError):
    """Another run writes into this run's directory."""


_SUSPENDED = f"this one had been suspended, or cut off from its file system, for more than {EXPIRES:g} s"


def is_lease(path: Path) -> bool:
    """Return whether a path has the name of a lease."""
    return path.stem == "lease" and path.suffix[1:].isdecimal()


def holder_of(directory: Path) -> Holder | None:
    """Return the holder of a directory's lease, None if there is none or if it is a dead process of this machine."""
    for number in sorted(_numbers(directory), reverse=True):
        holder = _read(directory / f"lease.{number}", time.monotonic() + FILLED_WITHIN)
        if holder is not None and (not holder.is_here or birth_of(holder.process) == holder.born):
            return holder
    return None


def check_is_free(directory: Path, ignored: Collection[str] = ()) -> set[str]:
    """Check that no run writes into a directory.

    Takes up to ``EXPIRES`` seconds if one of another machine did.

    Stale leases are removed.

    Args:
      directory: directory of a run; need not exist.
      ignored: tokens of leases that do not count.

    Returns:
      Tokens of the stale leases.

    Raises:
      ConfigError: a run does. The message states its machine, since when, and how to end it.
    """
    stale = set()
    for number in _numbers(directory):
        path = directory / f"lease.{number}"
        holder = _read(path, time.monotonic() + FILLED_WITHIN)
        if holder is not None and holder.token in ignored:
            continue
        if holder is None or not _is_alive(path, holder):
            if holder is not None:
                stale.add(holder.token)
            if _token_of(path) == (holder and holder.token):
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)
            continue
        job = f", job {holder.job}" if holder.job else ""
        stop = f"scancel {holder.job}" if holder.job else f"Ctrl-C, or kill {holder.process} on {holder.host}"
        raise ConfigError(
            f"{directory} {WRITTEN_BY} rank 0 on {holder.host} (process {holder.process}{job}, since "
            f"{holder.since}); stop it first ({stop}), or choose another name (--set name=...)"
        )
    return stale


def _is_alive(path: Path, first: Holder) -> bool:
    """Return whether the holder of a lease runs; on another machine, whether it renews its lease."""
    if first.is_here:
        return birth_of(first.process) == first.born
    until = time.monotonic() + EXPIRES
    print(f"{path.parent} was written from {first.host}: waiting up to {EXPIRES:g} s for its rank 0", flush=True)
    while time.monotonic() < until:
        time.sleep(POLL_EVERY)
        if (holder := _read(path, until)) != first:
            return holder is not None
    return False


def _token_of(path: Path) -> str | None:
    """Return the token of a lease; None if there is no lease, or if it is unreadable."""
    holder = _read(path, 0.0)
    return None if holder is None else holder.token


def _read(path: Path, until: float) -> Holder | None:
    """Return the content of a lease; None if there is none, or if it stays unreadable until ``until``."""
    while True:
        try:
            return Holder(**json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError):  # its writer is writing it, or has died while writing
            if time.monotonic() > until:
                return None
            time.sleep(0.02)


def _text(holder: Holder) -> str:
    """Return the content of a lease; its length is constant."""
    values: dict[str, Any] = holder._asdict()
    text = json.dumps(values, indent=1)
    return text + " " * max(0, 12 - len(str(holder.renewals))) + "\n"


def _describe_this_process() -> Holder:
    return Holder(
        token=secrets.token_hex(8),
        machine=_machine(),
        host=socket.gethostname(),
        process=os.getpid(),
        born=birth_of(os.getpid()),
        since=time.strftime("%Y-%m-%d %H:%M:%S %z"),
        job=os.environ.get("SLURM_JOB_ID", ""),
        renewals=0,
    )


def _machine() -> str:
    """Return an identity of the machine and namespace in which process ids are unique."""
    boot = ""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    with contextlib.suppress(OSError):
        boot += f"-{os.stat('/proc/self/ns/pid').st_ino}"
    return f"{socket.gethostname()}-{boot}"


def _numbers(directory: Path) -> list[int]:
    try:
        return [int(path.suffix[1:]) for path in directory.iterdir() if is_lease(path)]
    except OSError:
        return []
