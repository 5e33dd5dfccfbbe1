"""The players that a server serves, each with the versions of its weights that are loaded."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor

from gymnasium import spaces

from arena.config.gateway import GatewayConfig
from arena.gateway.answers import Refusal, shown
from arena.gateway.models import LoadedPlayer, Model, seconds_of_a_batch

IN_LOOP = 0.001
"""Seconds that a forward pass may hold up the event loop; slower policies act in a thread, which they share."""


class Player:
    """One player.

    Attributes:
      name: of the player.
      newest: the version that games get which want none in particular.
      on_batch: is told rows and seconds of each forward pass.
    """

    def __init__(self, models: Iterable[Model]) -> None:
        """Take the versions that are served from the beginning."""
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
        """The space of what it sees."""
        return self.newest.observation

    @property
    def action(self) -> spaces.Space:
        """The space of what it does."""
        return self.newest.action

    @property
    def flags(self) -> int:
        """Flags of its action mask, 0 where it has none."""
        return self.newest.flags

    @property
    def memory(self) -> bool:
        """Whether its actions depend on what it has seen before."""
        return self.newest.memory

    @property
    def versions(self) -> list[str]:
        """The versions that are loaded, the oldest first."""
        return sorted((model.version for model in self), key=int)

    @property
    def waiting(self) -> int:
        """Rows that wait for a forward pass."""
        return sum(model.waiting for model in self)

    def __iter__(self) -> Iterator[Model]:
        """Iterate over the versions that are loaded."""
        return iter(self._models.values())

    def __len__(self) -> int:
        """Return how many versions are loaded."""
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
        """Take a newer version for games that begin from now on."""
        newer.on_batch = self._batched
        self._models[newer.version] = newer
        self.newest = newer
        self.drop_unused()

    def drop_unused(self) -> None:
        """Let go of versions by which no game acts."""
        for version, model in list(self._models.items()):
            if model is not self.newest and not model.fixed and not model.users:
                del self._models[version]

    def needs_session(self) -> Refusal:
        """Return what a client is told that asks a player with memory outside a game."""
        text = f"player {self.name!r} has a memory: ask it in a session (start, tick, end)"
        return Refusal(400, "needs_session", text)


class ModelMaker:
    """Makes models of loaded players: warmed up, and in a thread where their forward passes are slow."""

    def __init__(self, config: GatewayConfig, *, deterministic: bool) -> None:
        """Prepare to make.

        Args:
          config: says how large batches are.
          deterministic: whether players take their most likely actions.
        """
        self._config, self._deterministic = config, deterministic
        self._thread: Executor | None = None

    def __call__(self, player: LoadedPlayer) -> Model:
        """Return the model of a player; it acts a few times, which loads and compiles what it needs."""
        executor = None
        if seconds_of_a_batch(player, self._config.max_batch) > IN_LOOP:
            executor = self._thread = self._thread or ThreadPoolExecutor(1, "forward")
        return Model(player, self._config, deterministic=self._deterministic, executor=executor)


def make_players(loaded: Iterable[LoadedPlayer], make: ModelMaker) -> dict[str, Player]:
    """Return players by name, of which several versions may have been loaded."""
    models: dict[str, list[Model]] = {}
    for player in loaded:
        models.setdefault(player.name, []).append(make(player))
    return {name: Player(of_it) for name, of_it in models.items()}
