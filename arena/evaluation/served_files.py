"""Players served by exported files: a given one, or one that is exported from each version of a run."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from arena.common.errors import ConfigError
from arena.config.run import RunConfig
from arena.evaluation.exported import OPEN, find_sample, inference_of_player
from arena.evaluation.players import split_entity
from arena.evaluation.served import RunVersions, SeatSpaces
from arena.experience.samples import ObservationSample, sample_of
from arena.export.formats import OPSET, onnx_bytes, put_weights, quantized, to_onnx
from arena.export.gate import Tolerance, answers_from, check, run_policy
from arena.export.metadata import ExportError, ExportMetadata, check_file, read_check_file
from arena.export.policy import ExportedPolicy
from arena.export.runtimes import onnx_runner
from arena.gateway.models import LoadedPlayer
from arena.records.run_directory import RunDirectory

logger = logging.getLogger(__name__)
PLATFORM = "onnxruntime_onnx"


def load_file(path: Path, lanes: int) -> LoadedPlayer:
    """Return the player of an ONNX or TorchScript file, compared with its check file.

    Raises:
      ConfigError: there is no such file, or a package is missing.
      ExportError: the file is damaged, another one, or differs.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: expected a file of arena export, found: {error.strerror}") from error
    run, about = OPEN[path.suffix](content, path)
    if check_file(path).is_file():
        tensors = read_check_file(path, content)
        sample, answers = sample_of(tensors, about.spaces, path), answers_from(tensors, about.spaces, path)
        check(run, about, sample, answers, Tolerance.as_written(about), path)
    else:
        logger.warning("%s is loaded unchecked: there is no %s beside it", path, check_file(path).name)
    return _served(about, run, lanes, fixed=True)


def _served(about: ExportMetadata, run: Any, lanes: int, *, fixed: bool) -> LoadedPlayer:
    spaces = about.spaces
    return LoadedPlayer(
        name=about.player,
        version=str(about.steps),
        observation=spaces.observation,
        action=spaces.action,
        flags=spaces.mask_size,
        policy=ExportedPolicy(run, about, lanes),
        platform=PLATFORM,
        fixed=fixed,
    )


class OnnxPlayers:
    """Exports players to ONNX as they are loaded: traced once, then with the weights of each version, and compared."""

    def __init__(self, run: RunDirectory, config: RunConfig, lanes: Mapping[str, int], *, int8: bool) -> None:
        """Store the arguments.

        Args:
          run: run directory with weights and observations of the players.
          config: configuration of the run.
          lanes: player -> number of agents that it serves concurrently.
          int8: whether to quantize weights to int8.
        """
        self._run, self._config, self._lanes, self._int8 = run, config, lanes, int8
        self._models: dict[str, Any] = {}
        self._samples: dict[str, ObservationSample] = {}

    def convert(self, loaded: LoadedPlayer) -> LoadedPlayer:
        """Return a player that runs in onnxruntime.

        Raises:
          ConfigError: it cannot be exported, or there are no observations for the comparison.
          ExportError: its file differs.
        """
        policy: Any = loaded.policy
        player, entity = split_entity(self._config, loaded.name)
        use = self._config.players[player].use
        inference = inference_of_player(policy, loaded.name, use)
        row, block = SeatSpaces(self._run, self._config).of(player, entity)
        about = ExportMetadata(
            player=loaded.name,
            steps=int(loaded.version),
            policy=use,
            settings={},
            spaces=block.spaces._replace(team=None),
            memory=inference.state_shape,
            opset=OPSET,
            quantized="int8" if self._int8 else "",
            normalization=getattr(inference, "normalization", {}),
        )
        name = f"{loaded.name}@{loaded.version}"
        if loaded.name not in self._models:
            sample = find_sample(self._run, self._config, name, row, block.spaces, 0, self._config.seed)
            self._samples[loaded.name] = sample if about.memory else sample.flat()
            self._models[loaded.name] = to_onnx(inference, OPSET)
        model, sample = self._models[loaded.name], self._samples[loaded.name]
        put_weights(model, inference)
        lanes = self._lanes[loaded.name]
        if about.memory:
            sample = sample.first_lanes(lanes)
        run = onnx_runner(onnx_bytes(quantized(model) if self._int8 else model, about), name)
        try:
            answers = run_policy(policy, inference, about, sample)
        except FloatingPointError as error:
            raise ExportError(f"{name}: {error}") from error
        check(run, about, sample, answers, Tolerance.usual(int8=self._int8), name)
        return _served(about, run, lanes, fixed=loaded.fixed)


class OnnxVersions:
    """Versions of a player as they appear in a run directory, as ONNX."""

    def __init__(self, source: RunVersions, players: OnnxPlayers) -> None:
        """Create it from the source of the versions, and the exporter."""
        self._source, self._players = source, players

    def newest(self) -> str | None:
        """See ``VersionSource``."""
        return self._source.newest()

    def load(self) -> LoadedPlayer:
        """See ``VersionSource``.

        Raises:
          ConfigError: it is damaged, or does not fit.
          ExportError: its file differs.
        """
        return self._players.convert(self._source.load())
