"""Detection of environments that have never worked: these end the run instead of being restarted."""

from arena.env_manager.faults import Fault, RetriesSpentError


class NeverWorkedError(RetriesSpentError):
    """No copy of an environment has ever finished an episode, and all of them fail in the same way."""


class FirstEpisodes:
    """Watches the copies of one match until the first episode is finished.

    Attributes:
      have_reset: whether a copy has ever been reset.
      have_finished: whether a copy has ever finished an episode: from then on, each fault concerns its copy only.
    """

    def __init__(self, use: str, copies: int, log: str) -> None:
        """Watch ``copies`` copies of an environment.

        Args:
          use: the environment's name in the configuration.
          copies: number of copies.
          log: path of the file with the tracebacks.
        """
        self.have_reset = self.have_finished = False
        self._use, self._copies, self._log = use, copies, log
        self._faults: dict[int, tuple[str, int]] = {}  # copy -> kind of its faults, and their number in a row

    def check(self, copy: int, fault: Fault) -> None:
        """Count a fault of a copy.

        Raises:
          NeverWorkedError: a method breaks the contract of its library; the constructor or the first reset fails twice
            in the same way; or every copy fails in its first episode in the same way, twice if it is alone.
        """
        if self.have_finished:
            return
        kind = f"{fault.what} {fault.method} {fault.kind}"
        before, count = self._faults.get(copy, (kind, 0))
        self._faults[copy] = kind, count + 1 if before == kind else 1
        again = self._faults[copy][1] > 1
        first_call = fault.method in ("constructor", "reset") and not self.have_reset
        everywhere = len(self._faults) == self._copies and {each for each, _ in self._faults.values()} == {kind}
        if fault.what == "contract" or (again and first_call) or (everywhere and (again or self._copies > 1)):
            raise self.error(fault)

    def error(self, fault: Fault) -> NeverWorkedError:
        """Return the error that states a fault in one sentence."""
        begin = f"environment {self._use!r}: {fault.method or 'an episode'} {fault.cause or fault.line}"
        if fault.what == "contract":
            return NeverWorkedError(begin)
        when = "in the first episode of every copy" if fault.method == "step" else "each time"
        return NeverWorkedError(f"{begin}, {when}; the environment has not worked yet (traceback: {self._log})")
