"""Log of the faults of a match's copies."""

from arena.common.logs import path_of_log
from arena.config.environment import EnvConfig
from arena.env_manager.faults import Fault
from arena.environment.episodes.first import FirstEpisodes
from arena.environment.setup import Services
from arena.protocol.messages import LogLine

MAX_LOGGED_FAULTS = 100
"""Different faults of a match that are logged with their tracebacks."""


class FaultLog:
    """Logs faults: one line for each at the root, and the traceback of each kind once at this rank.

    Attributes:
      first: detects an environment that has never worked.
    """

    def __init__(self, match: int, env: EnvConfig, services: Services) -> None:
        """Create the log of the match with this index."""
        self._match, self._services = match, services
        self.first = FirstEpisodes(env.use, env.num_envs, path_of_log(services.log))
        self._logged: set[str] = set()

    def record(self, number: int, fault: Fault) -> None:
        """Log a fault of a copy.

        Raises:
          NeverWorkedError: the environment has never worked.
        """
        services, line = self._services, fault.line
        copy = f"match {self._match}, copy {number} ({fault.what})"
        if line not in self._logged and len(self._logged) < MAX_LOGGED_FAULTS:
            self._logged.add(line)
            services.log.warning("%s: %s", copy, fault.text)
        self.first.check(number, fault)
        services.mailbox.post(0, LogLine(services.world.rank, "WARNING", f"{copy}: {line}"))
