"""Training from Python: ``arena.train`` starts a run as the command line does, and follows it."""

import json
import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

from arena.api.display import NotebookView, in_notebook, on_terminal
from arena.api.launcher import Launcher, check_call
from arena.api.run import Run
from arena.api.written import Written, check_main_guard
from arena.common.errors import ConfigError
from arena.config.run import RunConfig, load_config
from arena.config.yaml_source import read, write
from arena.records.run_directory import RunDirectory
from arena.report.progress_file import ProgressReader
from arena.report.progress_table import ProgressState

POLL_EVERY = 0.1
"""Seconds between two looks at a run."""

Config: TypeAlias = str | os.PathLike[str] | Mapping[str, Any] | RunConfig
OnProgress: TypeAlias = Callable[[ProgressState], Any]


class RunFailed(RuntimeError):
    """A run that has ended with an error which is not one of its configuration.

    Attributes:
      run: the run, with its records and its last checkpoint; None if it had not begun.
      code: exit code.
      last_lines: last lines of its output.
    """

    def __init__(self, run: Run | None, code: int, last_lines: list[str]) -> None:
        """Describe the failure."""
        self.run, self.code, self.last_lines = run, code, last_lines
        where = "the run" if run is None else str(run.path)
        super().__init__("\n".join([f"{where} has failed with exit code {code}:", *last_lines]))


def train(
    config: Config,
    /,
    *,
    resume: bool | Literal["if possible"] = False,
    ranks: int | None = None,
    hosts: str | None = None,
    restarts: int = 0,
    progress: bool | Literal["auto"] = "auto",
    on_progress: OnProgress | None = None,
    wait: bool = True,
    **keys: Any,
) -> "Training":
    """Train the policies of a configuration, over MPI, and return the run.

    The ranks are processes of their own, as under ``python -m arena.launch``; this process stays free of MPI. Ctrl-C,
    or the interrupt of a notebook, stops the run in order: it writes a checkpoint, and ``resume=True`` continues from
    it. A second one kills it. A run never outlives this process.

    Args:
      config: path of a YAML file, a mapping with the same keys, or ``Run.config`` of another run.
      resume: whether to continue from the newest checkpoint; ``"if possible"`` starts a new run where there is none.
      ranks: number of ranks; what the configuration needs if None.
      hosts: ``"node1:32,node2:32"``: machines, reached over ssh.
      restarts: number of restarts from the newest checkpoint if the run fails.
      progress: whether to show the progress: as on the command line in a terminal, as a table that is redrawn in a
        notebook, else as lines; ``"auto"`` does so while ``train`` waits.
      on_progress: called about twice a second with the state of the run (``arena.report.progress_table``), in this
        thread, or in another one with ``wait=False``. If it raises while ``train`` waits, the run is stopped in order.
      wait: whether to return at the end of the run; without, as soon as it has begun.
      **keys: keys of the configuration over those of ``config``; mappings are merged, as by ``--set``.

    Raises:
      ConfigError: the configuration is wrong or cannot be run here; the text is that of the command line.
      RunFailed: the run has failed.
      KeyboardInterrupt: the run was interrupted, and has ended.
    """
    check_call("arena.train")
    training = Training(
        config, keys, _options(resume, ranks, hosts, restarts), show=progress is True or (progress and wait),
        on_progress=on_progress,
    )  # fmt: skip
    if wait:
        return training.wait()
    training.wait_until_begun()
    return training


def _options(resume: bool | str, ranks: int | None, hosts: str | None, restarts: int) -> list[str]:
    """Return options of the command line.

    Raises:
      ConfigError: ``resume`` is something else.
    """
    if resume not in (True, False, "if possible"):
        raise ConfigError(f"resume: expected True, False or 'if possible', found {resume!r}")
    options = ["--resume"] if resume is True else ["--resume-or-start"] if resume else []
    options += [] if ranks is None else ["--ranks", str(ranks)]
    options += [] if hosts is None else ["--hosts", hosts]
    return options + (["--restarts", str(restarts)] if restarts else [])


class Training(Run):
    """A run that this process has started.

    Its state is that of the launcher, which outlives the ranks by some seconds.
    """

    def __init__(
        self, config: Config, keys: Mapping[str, Any], options: list[str], *, show: bool, on_progress: OnProgress | None
    ) -> None:
        """Start the run.

        Args:
          config: see ``train``.
          keys: keys of the configuration over those of ``config``.
          options: options of the command line.
          show: whether to show the progress.
          on_progress: see ``train``.

        Raises:
          ConfigError: the configuration is wrong.
        """
        self._generated: tempfile.TemporaryDirectory[str] | None = None
        self._run = _directory_of(config, keys)
        self._written = Written(self._run.code.absolute())
        path = self._file_of(config)
        overrides = list(_overrides("", self._written.value(keys)))
        self._written.write_pickled()
        try:
            loaded = load_config(path, overrides)
            check_main_guard(loaded.to_yaml())
        except ConfigError as error:
            self._written.remove_pickled()
            raise ConfigError(self._without_generated(str(error))) from None
        self._run = RunDirectory(loaded.run_root, loaded.name)
        self._view = NotebookView() if show and in_notebook() else None
        self._prints, self._on_progress = show, on_progress
        self._reader = ProgressReader(self._run.progress)
        self._polling = threading.Lock()
        words = [word for override in overrides for word in ("--set", override)]
        self._launcher = Launcher(
            [str(path), *words, *options],
            on_terminal=show and self._view is None and on_terminal(),
            writes_progress=self._view is not None or on_progress is not None,
        )

    def _file_of(self, config: Config) -> Path:
        """Return the path of the configuration file; one is written for anything else."""
        if isinstance(config, str | os.PathLike):
            return Path(config)
        if isinstance(config, RunConfig):
            text = config.to_yaml()
        elif isinstance(config, Mapping):
            text = write(self._written.value(config))
        else:
            raise ConfigError(f"expected a path, a mapping or a RunConfig, found {type(config).__name__}")
        self._generated = tempfile.TemporaryDirectory(prefix="arena-")
        path = Path(self._generated.name) / "config.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    def _without_generated(self, text: str) -> str:
        """Return a message without places in a generated file, which users do not see."""
        if self._generated is None:
            return text
        return re.sub(rf"{re.escape(self._generated.name)}/config\.yaml(:\d+)?: ", "", text)

    # State ------------------------------------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        """Whether the launcher runs."""
        return self._launcher.exit_code is None

    def stop(self) -> None:
        """Stop the run in order, as Ctrl-C does; called twice, kill it. It does not wait for the end."""
        self._launcher.interrupt()

    def wait_until_begun(self) -> None:
        """Wait until the run has begun.

        A thread follows it from then on.

        Raises:
          ConfigError: the configuration cannot be run.
          RunFailed: the run has failed.
        """
        try:
            while self.is_running and not self._run.is_being_written():
                self._poll()
                time.sleep(POLL_EVERY)
        except BaseException:
            self._end_interrupted()
            raise
        if self._launcher.exit_code is not None:
            self._conclude()
        threading.Thread(target=self._follow, name=f"arena {self.name}", daemon=True).start()

    def wait(self, timeout: float | None = None) -> "Training":
        """Wait until the run has ended, and return it.

        Args:
          timeout: largest number of seconds; None for no limit.

        Raises:
          ConfigError: the configuration cannot be run.
          RunFailed: the run has failed.
          TimeoutError: it still runs.
          KeyboardInterrupt: it was interrupted, and has ended.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            while self.is_running and (deadline is None or time.monotonic() < deadline):
                self._poll()
                time.sleep(POLL_EVERY)
        except BaseException:  # an interrupt, or an error of ``on_progress``
            self._end_interrupted()
            raise
        if self.is_running:
            raise TimeoutError(f"{self.path} still runs after {timeout:g} s")
        self._conclude()
        return self

    def _follow(self) -> None:
        while self.is_running:
            self._poll()
            time.sleep(POLL_EVERY)
        self._poll()

    def _end_interrupted(self) -> None:
        """Stop the run and wait until it has ended; interrupted again, kill it."""
        self._on_progress = None
        self.stop()
        print(f"stopping {self.path}: it writes a checkpoint; interrupt again to kill it", file=sys.stderr, flush=True)
        while self.is_running:
            try:
                self._poll()
                time.sleep(POLL_EVERY)
            except KeyboardInterrupt:
                self.stop()
        self._poll()
        self._run.progress.unlink(missing_ok=True)

    def _poll(self) -> None:
        """Show what is new."""
        if not self._polling.acquire(blocking=False):  # another thread does
            return
        try:
            output, errors = self._launcher.output.new_text(), self._launcher.errors.new_text()
            if self._prints and output and self._view is None:
                print(output, end="", flush=True)
            if self._prints and errors:
                print(self._without_generated(errors), end="", file=sys.stderr, flush=True)
            if self._view is None and self._on_progress is None:
                return
            state = self._reader.read()
            if state is not None and self._view is not None:
                self._view.show(state)
            if state is not None and self._on_progress is not None:
                self._on_progress(state)
        finally:
            self._polling.release()

    def _conclude(self) -> None:
        """Check how the run has ended.

        Raises:
          ConfigError: the configuration cannot be run.
          RunFailed: the run has failed.
        """
        self._poll()
        self._run.progress.unlink(missing_ok=True)
        code = self._launcher.exit_code
        if code and not self._run.config.is_file():
            self._written.remove_pickled()
        if code == 2:
            raise ConfigError(self._without_generated(self._launcher.user_error()))
        if code:
            lines = self._launcher.errors.last_lines or self._launcher.output.last_lines
            raise RunFailed(self if self._run.config.is_file() else None, code if code > 0 else 128 - code, lines)


def _directory_of(config: Config, keys: Mapping[str, Any]) -> RunDirectory:
    """Return the run directory of a configuration that may not be valid."""
    values: dict[str, Any] = {}
    if isinstance(config, RunConfig):
        values = {"name": config.name, "run_root": config.run_root}
    elif isinstance(config, Mapping):
        values = dict(config)
    elif isinstance(config, str | os.PathLike):
        values = read(Path(config)).data
    root, name = ({**values, **keys}.get(key, default) for key, default in (("run_root", "runs"), ("name", "run")))
    return RunDirectory(str(root), name if isinstance(name, str) and name else "run")


def _overrides(place: str, value: Any) -> Iterator[str]:
    """Yield overrides of the command line for nested keys: ``policies.blue.use="ppo"``."""
    if isinstance(value, Mapping) and (value or not place):
        for key, item in value.items():
            yield from _overrides(f"{place}.{key}" if place else str(key), item)
    else:
        yield f"{place}={json.dumps(value)}"
