"""Trained players as files for other runtimes, written only if their outputs equal the player's."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from arena.common.errors import ConfigError
from arena.common.files import write_atomically
from arena.config.resumed import load_stored_config
from arena.config.rounds import TableRow
from arena.config.run import RunConfig
from arena.envs.interface import EntitySpaces
from arena.evaluation.observed import record_observations
from arena.evaluation.players import seed_libraries, split_entity
from arena.evaluation.return_loss import ReturnLoss, return_loss
from arena.evaluation.served import SeatSpaces, load_players
from arena.experience.samples import ObservationSample, read_sample, sample_of
from arena.export.formats import onnx_bytes, quantized, to_onnx, to_torchscript
from arena.export.gate import FEWEST, OutputDifference, Tolerance, answers_from, check, run_policy
from arena.export.metadata import ExportError, ExportMetadata, digest_of_weights, read_check_file, write_check_file
from arena.export.runtimes import Run, open_onnx, open_torchscript
from arena.records.run_directory import RunDirectory
from arena.tensors.weights import read_tensors, write_tensors

SUFFIXES = {"onnx": ".onnx", "torchscript": ".pt", "safetensors": ".safetensors"}
OPEN: dict[str, Callable[[bytes, object], tuple[Run, ExportMetadata]]] = {".onnx": open_onnx, ".pt": open_torchscript}


class Exported(NamedTuple):
    """A file that was written.

    Attributes:
      path: path of the file.
      size: size in bytes.
      about: its metadata.
      agreement: result of the comparison; None for weights alone.
      loss: loss of the player's return, if episodes were played.
    """

    path: Path
    size: int
    about: ExportMetadata
    agreement: OutputDifference | None
    loss: ReturnLoss | None = None


class Trained(NamedTuple):
    """A player of a run with its weights.

    Attributes:
      policy: the policy, with as many lanes as its sample has.
      inference: the policy as a module.
      about: metadata of a file of it.
      row: a match of the player.
    """

    policy: Any
    inference: Any
    about: ExportMetadata
    row: TableRow


def load_trained(run: RunDirectory, config: RunConfig, name: str, lanes: int) -> Trained:
    """Return a player (``blue`` or ``blue@2000``), or the actor of an entity of a team (``team.listener_0``).

    Raises:
      ConfigError: there is no such player, it has no weights, or its policy cannot be exported.
    """
    whole, entity = split_entity(config, name)
    player = whole.partition("@")[0]
    seed_libraries(config.seed)
    loaded, _ = load_players(run, config, [name], lanes={name: lanes}, seed=config.seed)
    (loaded_player,) = loaded
    chosen = config.players[player]
    policy: Any = loaded_player.policy
    inference = inference_of_player(policy, player, chosen.use)
    row, block = SeatSpaces(run, config).of(player, entity)
    about = ExportMetadata(
        player=loaded_player.name,
        steps=int(loaded_player.version),
        policy=chosen.use,
        settings=_plain(chosen.settings),
        spaces=block.spaces._replace(name=player, team=None),
        memory=inference.state_shape,
        weights=digest_of_weights(policy.weights()),
        normalization=getattr(inference, "normalization", {}),
    )
    return Trained(policy, inference, about, row)


def inference_of_player(policy: Any, player: str, use: str) -> Any:
    """Return a player's policy as a module for other runtimes (``arena.policies.inference.Inference``).

    Raises:
      ConfigError: its policy cannot be exported.
    """
    if not callable(getattr(policy, "inference", None)):
        raise ConfigError(
            f"player {player!r}: policy {use!r} cannot be exported: expected a method inference(), as ppo, dqn, sac, "
            "td3 and ddpg have it"
        )
    return policy.inference()


def _plain(settings: Any) -> dict[str, Any]:
    return settings.model_dump(mode="json") if hasattr(settings, "model_dump") else dict(settings)


def find_sample(
    run: RunDirectory, config: RunConfig, name: str, row: TableRow, spaces: EntitySpaces, record: int, seed: int
) -> ObservationSample:
    """Return observations of a player: those that training has kept, or with ``record`` that many new ones.

    Raises:
      ConfigError: there are none, or fewer than ``FEWEST``.
    """
    whole, entity = split_entity(config, name)
    if record:
        sample = record_observations(run, config, whole, row, max(record, FEWEST), seed, entity)
    else:
        path = run.observations(whole.partition("@")[0])
        if not path.is_file():
            raise ConfigError(
                f"{path}: expected observations to compare with, found none: training keeps them with each snapshot "
                "(records.observations); --record 1024 plays the run's environment for new ones"
            )
        sample = read_sample(path, spaces)
    if sample.rows < FEWEST:
        raise ConfigError(f"expected at least {FEWEST} observations, found {sample.rows}; use --record 1024")
    return sample


def export(
    run: RunDirectory,
    config: RunConfig,
    name: str,
    to: str,
    *,
    out: Path | None = None,
    opset: int,
    int8: bool = False,
    record: int = 0,
    episodes: int = 0,
    tolerance: Tolerance,
) -> Exported:
    """Write a player to a file, if the file's outputs equal the player's.

    Args:
      run: the run directory.
      config: configuration of the run.
      name: name of the player.
      to: ``onnx``, ``torchscript`` or ``safetensors``.
      out: path of the file; None puts it beside the player's snapshots.
      opset: version of ONNX's operators.
      int8: whether to quantize weights to int8.
      record: number of observations to record; 0 takes those that training has kept.
      episodes: number of episodes of player and file, to measure the loss of return.
      tolerance: largest allowed difference.

    Raises:
      ConfigError: the player cannot be exported, or there are no observations for the comparison.
      ExportError: the file differs; nothing was written.
    """
    whole, entity = split_entity(config, name)
    if entity is not None and episodes:
        raise ConfigError(f"--episodes: expected a player with one actor, found {name}; leave --episodes out")
    trained = load_trained(run, config, name, 1)
    parts = [str(trained.about.steps), *([] if entity is None else [entity]), *(["int8"] if int8 else [])]
    path = out or run.players / whole.partition("@")[0] / f"{'.'.join(parts)}{SUFFIXES[to]}"
    if to == "safetensors":
        return _export_weights(path, trained)
    spaces = trained.about.spaces
    sample = find_sample(run, config, name, trained.row, spaces, record, config.seed)
    sample = sample if trained.about.memory else sample.flat()
    trained = load_trained(run, config, name, sample.starts.shape[1])
    about = trained.about
    if to == "onnx":
        model = to_onnx(trained.inference, opset)
        about = about._replace(opset=opset, quantized="int8" if int8 else "")
        model = quantized(model) if int8 else model
        make = partial(onnx_bytes, model)
    else:
        make = partial(to_torchscript, trained.inference)
    answers = run_policy(trained.policy, trained.inference, about, sample)
    run_file, _ = OPEN[SUFFIXES[to]](make(about), path)
    agreement = check(run_file, about, sample, answers, tolerance, path)
    about = about._replace(checked=agreement._asdict())
    content = make(about)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, partial(_write_bytes, content))
    write_check_file(path, content, {**sample.tensors(), **answers.tensors(spaces)})
    loss = return_loss(run, config, about, run_file, trained.row, episodes, config.seed) if episodes else None
    return Exported(path, len(content), about, agreement, loss)


def _write_bytes(content: bytes, path: Path) -> None:
    path.write_bytes(content)


def _export_weights(path: Path, trained: Trained) -> Exported:
    """Write the weights alone, and read them back."""
    weights = {name: tensor.numpy() for name, tensor in trained.policy.weights().items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_tensors(path, weights, {"arena": trained.about.to_json()})
    tensors = read_tensors(path)
    odd = [name for name in weights if name not in tensors or tensors[name].tobytes() != weights[name].tobytes()]
    if odd:
        path.unlink()
        raise ExportError(f"{path}: expected the policy's {odd[0]}, read back something else")
    return Exported(path, path.stat().st_size, trained.about, None)


def check_export(
    path: Path, run: RunDirectory | None, tolerance: Callable[[bool], Tolerance]
) -> tuple[ExportMetadata, OutputDifference]:
    """Return the metadata of a file, and its difference from its check file or from the policy itself.

    Args:
      path: path of the file; its check file lies beside it.
      run: run of the player, for a comparison with the policy itself; None compares with the check file.
      tolerance: returns the largest allowed difference, given whether its weights are int8.

    Raises:
      ConfigError: there is no such file, check file or player.
      ExportError: the file is damaged, another one, or differs.
    """
    if path.suffix not in OPEN:
        raise ConfigError(f"{path}: expected a file of arena export, {' or '.join(OPEN)}")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: expected a file that can be read, found: {error.strerror}") from error
    run_file, about = OPEN[path.suffix](content, path)
    tensors = read_check_file(path, content)
    sample = sample_of(tensors, about.spaces, path)
    answers = answers_from(tensors, about.spaces, path)
    if run is not None:
        trained = load_trained(run, load_stored_config(run.config), _name(run, about), sample.starts.shape[1])
        if trained.about.spaces[1:] != about.spaces[1:]:
            raise ExportError(f"{path}: expected the spaces of {trained.about.player!r} in {run}, found others")
        answers = run_policy(trained.policy, trained.inference, trained.about, sample)
    return about, check(run_file, about, sample, answers, tolerance(bool(about.quantized)), path)


def _name(run: RunDirectory, about: ExportMetadata) -> str:
    """Return the name of a file's player with its version, if the run still has that as a snapshot."""
    name = f"{about.player}@{about.steps}"
    return name if run.snapshot(about.player, about.steps).is_file() else about.player
