"""Served players, each with the loaded versions of its weights."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor

from gymnasium import spaces

from arena.config.gateway import GatewayConfig
from arena.gateway.http.responses import Refusal, shown
from arena.gateway.models import LoadedPlayer, Model, seconds_of_a_batch

IN_LOOP = 0.001
"""Seconds that a forward pass may block the event loop; slower policies act in a common thread."""


class Player:
    """A served player.

    Attributes:
      name: of the player.
      newest: the version for games that request no other one.
      on_batch: called with rows and seconds of each forward pass.
    """

    def __init__(self, models: Iterable[Model]) -> None:
        """Add the versions that are served from the beginning."""
        listed = sorted(models, key=lambda model: (not model.fixed, int(model.version)))
        self._models = {model.version: model for model in listed}
        self.newest = listed[-1]
        self.name = self.newest.name
        self.on_batch: Callable[[int, float], None] = lambda rows, seconds: None
        for model in listed:
            model.on_batch = self._batched

    def _batched(self, rows: int, seconds: float) -> None:
        self.on_batch(rows, seconds)

    @property
    def observation(self) -> spaces.Space:
        """Its observation space."""
        return self.newest.observation

    @property
    def action(self) -> spaces.Space:
        """Its action space."""
        return self.newest.action

    @property
    def flags(self) -> int:
        """Size of its action mask, 0 if it has none."""
        return self.newest.flags

    @property
    def memory(self) -> bool:
        """Whether it is recurrent."""
        return self.newest.memory

    @property
    def versions(self) -> list[str]:
        """The loaded versions, oldest first."""
        return sorted((model.version for model in self), key=int)

    @property
    def waiting(self) -> int:
        """Number of rows that wait for a forward pass."""
        return sum(model.waiting for model in self)

    def __iter__(self) -> Iterator[Model]:
        """Iterate over the loaded versions."""
        return iter(self._models.values())

    def __len__(self) -> int:
        """Return the number of loaded versions."""
        return len(self._models)

    def at(self, version: str | None) -> Model:
        """Return a version, the newest for None.

        Raises:
          Refusal: it is not loaded.
        """
        if version is None or version == self.newest.version:
            return self.newest
        if version not in self._models:
            text = f"there is no version {shown(version)} of {self.name!r}; versions: {', '.join(self.versions)}"
            raise Refusal(404, "unknown_model", text)
        return self._models[version]

    def adopt(self, newer: Model) -> None:
        """Use a newer version for games that begin from now on."""
        newer.on_batch = self._batched
        self._models[newer.version] = newer
        self.newest = newer
        self.drop_unused()

    def drop_unused(self) -> None:
        """Drop versions that no game uses."""
        for version, model in list(self._models.items()):
            if model is not self.newest and not model.fixed and not model.users:
                del self._models[version]

    def needs_session(self) -> Refusal:
        """Return the refusal of a request to a recurrent player outside a game."""
        text = f"player {self.name!r} has a memory: query it in a session (start, tick, end)"
        return Refusal(400, "needs_session", text)


class ModelMaker:
    """Makes models of loaded players: warmed up, and in a thread if their forward passes are slow."""

    def __init__(self, config: GatewayConfig, *, deterministic: bool) -> None:
        """Prepare to make models.

        Args:
          config: the limits, for the size of batches.
          deterministic: whether players take their most likely actions.
        """
        self._config, self._deterministic = config, deterministic
        self._thread: Executor | None = None

    def __call__(self, player: LoadedPlayer) -> Model:
        """Return the model of a player, after a few forward passes, which load and compile what it needs."""
        executor = None
        if seconds_of_a_batch(player, self._config.max_batch) > IN_LOOP:
            executor = self._thread = self._thread or ThreadPoolExecutor(1, "forward")
        return Model(player, self._config, deterministic=self._deterministic, executor=executor)


def make_players(loaded: Iterable[LoadedPlayer], make: ModelMaker) -> dict[str, Player]:
    """Return players by name; several versions of one may have been loaded."""
    models: dict[str, list[Model]] = {}
    for player in loaded:
        models.setdefault(player.name, []).append(make(player))
    return {name: Player(of_it) for name, of_it in models.items()}
