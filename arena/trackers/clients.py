"""The clients of the trackers behind one interface; each is the tracker's own library."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from arena.common.errors import ConfigError
from arena.common.registry import packages_for
from arena.trackers.points import Point

PROJECT = "arena"
"""Project, or experiment, of runs where the library's own environment variable names no other."""

TRACKIO_WRITES = 1.0
"""Seconds in which the thread of trackio, which writes every half a second, has written what was logged."""

MLFLOW_BATCH = 1000
"""Most metrics of one request, by MLflow's interface."""


class Description(NamedTuple):
    """What a tracker shows of a run besides its curves.

    Attributes:
      name: name of the run.
      group: name of the sweep that it is part of; None for a single run.
      path: the run directory.
      config: keys of the configuration -> values as text.
      players: names of its players.
    """

    name: str
    group: str | None
    path: Path
    config: Mapping[str, str]
    players: Sequence[str]


class Client(Protocol):
    """A run in a tracker.

    Attributes:
      id: identity of the run there, by which another process continues it.
    """

    id: str

    def send(self, points: Sequence[Point], first: int) -> None:
        """Send points.

        Args:
          points: the points, in the order in which they are always sent.
          first: number of the first one since the beginning of the run.
        """

    def close(self) -> None:
        """Wait until everything is sent, and end."""


class Wandb:
    """Weights & Biases; WANDB_PROJECT, WANDB_ENTITY, WANDB_MODE=offline and so on are the library's own."""

    def __init__(self, described: Description, id: str | None) -> None:  # noqa: A002
        """Continue the run ``id``, or create one."""
        import wandb

        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=described.name,
            group=described.group,
            id=id,
            resume="allow" if id is not None else None,
            dir=str(described.path),
            config=dict(described.config),
            settings=wandb.Settings(console="off", disable_git=True, disable_code=True, silent=True),
        )
        self.id = self._run.id
        for player in described.players:  # each has its own number of steps
            self._run.define_metric(f"{player}/steps", hidden=True)
            self._run.define_metric(f"{player}/*", step_metric=f"{player}/steps")

    def send(self, points: Sequence[Point], first: int) -> None:
        """See ``Client``. W&B ignores points up to its own last number, which it has received before."""
        for number, point in enumerate(points, first):
            values = {f"{point.player}/{name}": value for name, value in point.values.items()}
            self._run.log({**values, f"{point.player}/steps": point.steps}, step=number)

    def close(self) -> None:
        """See ``Client``."""
        self._run.finish()


class MLflow:
    """MLflow: the server of MLFLOW_TRACKING_URI, else files in ``mlruns`` of the current directory."""

    def __init__(self, described: Description, id: str | None) -> None:  # noqa: A002
        """Continue the run ``id``, or create one."""
        place = os.environ.setdefault("MLFLOW_TRACKING_URI", (Path.cwd() / "mlruns").as_uri())
        if place.startswith("file:"):
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # MLflow calls its files a legacy
        from mlflow import MlflowClient
        from mlflow.entities import Param, RunTag

        self._client = MlflowClient()
        if id is None:
            title = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
            experiment = self._client.get_experiment_by_name(title)
            number = self._client.create_experiment(title) if experiment is None else experiment.experiment_id
            run = self._client.create_run(number, run_name=described.name)
            id = run.info.run_id  # noqa: A001
            params = [Param(key, value) for key, value in described.config.items()]
            for start in range(0, len(params), 100):  # most of one request
                self._client.log_batch(id, params=params[start : start + 100])
            if described.group is not None:
                self._client.log_batch(id, tags=[RunTag("arena.sweep", described.group)])
        else:
            self._client.update_run(id, status="RUNNING")
        self.id = id
        self._last: dict[str, int] | None = None

    def _last_steps(self) -> dict[str, int]:
        """Return the last steps of each curve that MLflow has: another process may have died before it could store."""
        keys = self._client.get_run(self.id).data.metrics
        return {key: max(each.step for each in self._client.get_metric_history(self.id, key)) for key in keys}

    def send(self, points: Sequence[Point], first: int) -> None:
        """See ``Client``."""
        from mlflow.entities import Metric

        if self._last is None:
            self._last = self._last_steps() if first else {}
        metrics = [
            Metric(f"{point.player}/{name}", value, int(point.time * 1000), point.steps)
            for point in points
            for name, value in point.values.items()
        ]
        new = [metric for metric in metrics if metric.step > self._last.get(metric.key, -1)]
        for start in range(0, len(new), MLFLOW_BATCH):
            self._client.log_batch(self.id, metrics=new[start : start + MLFLOW_BATCH])

    def close(self) -> None:
        """See ``Client``."""
        self._client.set_terminated(self.id)


class Trackio:
    """trackio: TRACKIO_DIR, TRACKIO_SPACE_ID and so on are the library's own."""

    def __init__(self, described: Description, id: str | None) -> None:  # noqa: A002
        """Continue the run ``id``, or create one."""
        import trackio

        self.id = id or f"{described.name}-{os.urandom(3).hex()}"
        self._run = trackio.init(
            project=os.environ.get("TRACKIO_PROJECT", PROJECT),
            name=self.id,
            group=described.group,
            config=dict(described.config),
            resume="allow",
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )

    def send(self, points: Sequence[Point], first: int) -> None:
        """See ``Client``."""
        for point in points:
            values = {f"{point.player}/{name}": value for name, value in point.values.items()}
            self._run.log(values, step=point.steps)
        time.sleep(TRACKIO_WRITES)

    def close(self) -> None:
        """See ``Client``."""
        self._run.finish()


CLIENTS: dict[str, Callable[[Description, str | None], Client]] = {
    "wandb": Wandb,
    "mlflow": MLflow,
    "trackio": Trackio,
}
"""Name of a tracker -> its client."""


def connect(tracker: str, described: Description, id: str | None) -> Client:  # noqa: A002
    """Return the run in a tracker: the one with this identity, or a new one.

    Raises:
      ConfigError: the library is not installed, or has refused.
    """
    try:
        with packages_for(f"the tracker {tracker}"):
            return CLIENTS[tracker](described, id)
    except ConfigError:
        raise
    except Exception as error:  # each library has errors of its own
        text = " ".join(str(error).split()) or type(error).__name__
        raise ConfigError(f"{tracker}: expected a run that can be created or continued there, found: {text}") from error
