"""The league in a run: turns the manager's jobs into messages, and reports of processes into its results."""

import os
import shutil
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from arena.common.errors import ConfigError
from arena.common.outcomes import ranks_of, scores_of
from arena.common.waiting import Pacer
from arena.comms import Mailbox
from arena.config.run import RunConfig
from arena.plan.assignment import Plan
from arena.protocol.league import Job, Published, Restart
from arena.protocol.messages import Episode, Episodes
from arena.records.run_directory import RunDirectory, training_state_of
from arena.records.writers.league import LeagueRecords

KEPT = 4
"""Published weights of a player that are kept although no job names them: a worker may be about to load them."""


COMPLAIN_EVERY = 60.0
"""Seconds between two warnings of a failing disk."""


class LeagueCoordinator:
    """The root's side of a league.

    Active players publish their weights as files; a snapshot is a hard link to the newest of them, so it is on disk
    from the start. No player is frozen or restarted while a checkpoint is being written, so that the checkpoint's
    players and league are consistent.

    Attributes:
      records: tables of the league's standing.
      begun: whether the first jobs were sent. Before that no rank plays, and no checkpoint could be written.
      holding: whether players may currently not be frozen or restarted.
    """

    def __init__(
        self,
        config: RunConfig,
        run: RunDirectory,
        mailbox: Mailbox,
        plan: Plan,
        records: LeagueRecords,
        note: Callable[[str, str], None],
        state: Mapping[str, Any] | None,
    ) -> None:
        """Create the league, or continue from ``state``.

        Raises:
          ConfigError: a player has more matches than jobs.
        """
        assert config.league is not None
        self._config, self._section, self._run = config, config.league, run
        self._mailbox, self._plan, self._note = mailbox, plan, note
        self.records = records
        self._matches: dict[str, list[int]] = {player: [] for player in plan.groups}
        for match in plan.matches:
            self._matches[match.seats[0].player].append(match.index)
        self._manager = config.league.manager(
            config.seed,
            self._save,
            self._load,
            self._launch,
            self._roll_back,
            max_active_player_job=self._jobs_at_once(),
        )
        self._policies = {
            player.player_id: str(config.league.policy_of(type(player), config.policies))
            for player in self._manager.active_players
        }
        self._published: dict[str, Published] = {}
        self._files: dict[str, deque[str]] = {player: deque() for player in plan.groups}
        # player -> number of its restarts, and its steps at the latest one
        self._restarts: dict[str, tuple[int, int]] = {}
        self._pending: dict[str, Restart] = {}  # restarts that were ordered and are not carried out yet
        self._finished: set[str] = set()  # players that have stopped learning
        self._left: dict[int, int] = {}  # job in flight -> episodes that have not been reported
        self._counted: dict[int, int] = {}  # job in flight -> episodes that have counted
        self._match_of: dict[int, int] = {}
        self._weights_of: dict[int, set[str]] = {}
        # match -> files of its last job, which fills the time until the next one
        self._filling: dict[int, set[str]] = {}
        self._waiting: dict[str, list[tuple[dict[str, Any], int]]] = {}  # player -> jobs that wait for its restart
        self._closed: set[int] = set()
        self._complaints = Pacer(COMPLAIN_EVERY)
        self.begun = False
        self.holding = False
        if state is not None:
            self._manager.load_state_dict(state["manager"])
            self._left = {int(job): left for job, left in state["left"].items()}
            self._counted = {int(job): counted for job, counted in state["counted"].items()}
            self._restarts, self._pending = restarts_of(state)
        self.records.begin(self._manager, {} if state is None else state["games"])

    def _jobs_at_once(self) -> int:
        """Return the number of jobs in flight of each player: one for each of its matches, if not configured."""
        matches = max(len(indices) for indices in self._matches.values())
        jobs = self._section.settings.get("max_active_player_job", matches)
        if jobs < matches:
            raise ConfigError(
                f"league.settings.max_active_player_job: expected at least as many jobs as a player has matches "
                f"({matches}), found {jobs}; the other matches would have nothing to play"
            )
        return jobs

    def state(self) -> dict[str, Any]:
        """Return, as JSON values, the state that a resumed run continues from."""
        return {
            "manager": self._manager.state_dict(),
            "left": {str(job): left for job, left in self._left.items()},
            "counted": {str(job): counted for job, counted in self._counted.items()},
            "restarts": {player: list(restart) for player, restart in self._restarts.items()},
            "pending_restarts": {player: list(restart) for player, restart in self._pending.items()},
            "games": self.records.games,
        }

    # Reports of processes ------------------------------------------------------------------------------------------

    def published(self, message: Published) -> None:
        """Record a player's newest weights."""
        player = message.player
        files = self._files[player]
        files.append(message.path)
        if message.finished:
            self.finish(player)
        pending = self._pending.get(player)
        if pending is not None and message.restarts < pending.number:  # written before the restart was received
            if message.finished:  # it will not be received in this run
                self._published[player] = message._replace(path=pending.path, restarts=pending.number)
            return
        self._published[player] = message
        if pending is not None:
            # A reset begins the schedules again; a rollback continues them.
            began = message.steps if pending.snapshot is None else self._restarts.get(player, (0, 0))[1]
            self._restarts[player] = message.restarts, began
            self._manager.begin_phase(player, message.steps)
            if pending.snapshot is None:
                self._note("INFO", f"{player} is reset after {message.steps:,} steps")
            self.records.restarted(player, message.steps, pending.snapshot)
            del self._pending[player]
            for job, episodes in self._waiting.pop(player, ()):
                self._send(job, episodes)
        try:
            _name(self._run.path / message.path, self._run.path / self._manager.player(player).checkpoint_path)
        except OSError as error:
            self._warn_of_disk(f"the newest weights of {player} get no name of their own: {error}")
        at_play = (*self._weights_of.values(), *self._filling.values())
        named = set().union(*at_play, (p.path for p in self._published.values()))
        for path in list(files)[:-KEPT]:
            if path not in named:
                files.remove(path)
                (self._run.path / path).unlink(missing_ok=True)
                training_state_of(self._run.path / path).unlink(missing_ok=True)

    def episodes(self, message: Episodes) -> Episodes:
        """Count the results of jobs; episodes that a fault has ended do not count.

        Returns:
          The report, in which episodes that no longer count are marked.
        """
        late: set[int] = set()
        of_jobs: dict[int, list[Episode]] = {}
        for episode in message.episodes:
            if episode.job is not None:
                of_jobs.setdefault(episode.job, []).append(episode)
        for job_id, episodes_of_job in of_jobs.items():
            if job_id not in self._left:
                self._note("WARNING", f"match {message.match} reports on job {job_id}, which no match plays")
                continue
            valid = [episode for episode in episodes_of_job if not episode.faulted]
            if self._manager.report({"job_id": job_id, **_results(valid)}):
                self.records.met(episode.players for episode in valid)
                self._counted[job_id] = self._counted.get(job_id, 0) + len(valid)
            else:
                late.add(job_id)
            self._left[job_id] -= len(episodes_of_job)
            if self._left[job_id] <= 0:
                self._finish(job_id)
        if not late:
            return message
        return message._replace(
            episodes=tuple(episode._replace(late=episode.job in late) for episode in message.episodes)
        )

    def _finish(self, job_id: int) -> None:
        del self._left[job_id]
        self._filling[self._match_of.pop(job_id)] = self._weights_of.pop(job_id)
        self._manager.finish_job({"job_id": job_id, "results": []})
        self.records.job_ended(job_id, self._counted.pop(job_id, 0))

    # The league's actions ----------------------------------------------------------------------------------------

    def advance(self) -> None:
        """Advance the league, once every player has published weights."""
        if self._published.keys() != self._matches.keys():
            return
        if not self.begun:
            self.begun = True
            for job in self._manager.jobs_in_flight:  # of an earlier attempt
                self._send(job, self._left[job["job_id"]])
        if not self.holding:  # otherwise the league would count more steps than the checkpoint
            self._take_steps()
        try:
            done = self._manager.advance(freeze=not self.holding, finished=self._finished)
        except OSError as error:
            self._warn_of_disk(f"a snapshot waits: {error}")
            return
        for frozen in done.snapshots:
            self._note("INFO", f"{frozen.parent_id} is frozen as {frozen.player_id}")
            self.records.frozen(self._manager, frozen)
        for player in (*done.mutated, *done.rolled_back):
            self.records.changed(self._manager, player)
        for job, reason in done.failed:
            self._note("WARNING", f"job {job['job_id']} of {job['launch_player']} could not be launched: {reason}")
        self.records.update(self._manager, force=bool(done.snapshots))

    def finish(self, player: str) -> None:
        """Stop freezing and restarting a player with a spent budget: its workers no longer poll for orders."""
        if player in self._finished:
            return
        self._finished.add(player)
        if player in self._pending:
            self._note("INFO", f"{player} has stopped before its reset; it is reset when the run is resumed")

    def _warn_of_disk(self, text: str) -> None:
        """Warn of a failing disk, at intervals; the league continues and tries again."""
        if self._complaints.due():
            self._note("WARNING", text)

    def close_match(self, index: int) -> None:
        """Send no more jobs to a match."""
        self._closed.add(index)

    def _take_steps(self) -> None:
        """Report the players' steps to the league."""
        for player, message in self._published.items():
            self._manager.update_active_player({"player_id": player, "total_agent_step": message.steps})

    def close(self) -> None:
        """Write the standing one last time."""
        self._take_steps()
        self.records.update(self._manager, force=True)

    def _save(self, checkpoint_path: str, snapshot_path: str) -> None:
        """Link a player's newest weights to the path of a snapshot."""
        player = next(p.player_id for p in self._manager.active_players if p.checkpoint_path == checkpoint_path)
        source, target = self._run.path / self._published[player].path, self._run.path / snapshot_path
        state, kept = training_state_of(source), training_state_of(target)
        if state.is_file():
            kept.parent.mkdir(exist_ok=True)
            _name(state, kept)
            for old in self._outdated_states(player, kept.parent):
                old.unlink(missing_ok=True)
        _name(source, target)

    def _outdated_states(self, player: str, folder: Path) -> list[Path]:
        """Return the training states of snapshots that are too old for their player to be rolled back to."""
        rollback = getattr(self._manager.player(player).cfg, "rollback", None)
        states = sorted(folder.glob("*.safetensors"), key=lambda path: int(path.stem))
        return states if rollback is None else states[: -rollback.snapshots]

    def _load(self, player: str, path: str) -> None:
        """Reset a player; others meet it with its new weights from here on."""
        self._restart(player, path)

    def _roll_back(self, player: str, snapshot: Any) -> None:
        """Restart a player from a snapshot of its own."""
        own_games = self._manager.player(player).own_games
        self._note(
            "WARNING",
            f"{player} has got worse: it took {own_games.share:.0%} of the points of its latest games against its own "
            f"newest snapshots (rollback.below: {own_games.below:.0%}); it is rolled back to {snapshot.player_id}",
        )
        self._restart(player, snapshot.checkpoint_path, snapshot.player_id)

    def _restart(self, player: str, path: str, snapshot: str | None = None) -> None:
        number = self._restarts.get(player, (0, 0))[0] + 1
        has_state = snapshot is not None and training_state_of(self._run.path / path).is_file()
        self._pending[player] = restart = Restart(path, number, snapshot, has_state)
        self._published[player] = self._published[player]._replace(path=path, restarts=number)
        self._mailbox.post(self._plan.leader(player), restart)

    def _launch(self, job: dict[str, Any]) -> None:
        self._left[job["job_id"]] = int(job["env"].get("episodes", self._section.episodes))
        self._send(job, self._left[job["job_id"]])

    def _send(self, job: dict[str, Any], episodes: int) -> None:
        """Send a job to the match of its player with the fewest jobs.

        If the player is to restart, the job waits until it has: the match fills the time with its last job.
        """
        job_id, player = job["job_id"], job["launch_player"]
        at_play = list(self._match_of.values())
        match = min(self._matches[player], key=at_play.count)
        if player in self._pending and (match in at_play or match in self._filling):
            self._waiting.setdefault(player, []).append((job, episodes))
            return
        self._match_of[job_id] = match
        self.records.job_began(job, match)
        others = {member for side in job["sides"] for member in side if member != player or not job["train"]}
        weights = {
            member: self._published[member].path if member in self._published else job["checkpoint_paths"][member]
            for member in others
        }
        self._weights_of[job_id] = set(weights.values())
        if match in self._closed:
            return
        message = Job(
            id=job_id,
            player=player,
            sides=tuple(tuple(side) for side in job["sides"]),
            weights=weights,
            policies={member: self._policy_of(member) for member in others},
            train=job["train"],
            episodes=episodes,
            num_envs=job["env"].get("num_envs"),
            settings=dict(job["env"].get("settings", {})),
            options=job["env"].get("options"),
            forward=dict(job["forward"]),
            data=dict(job["data"]),
        )
        environment, _ = self._plan.match_ranks(match)
        self._mailbox.post(environment, message)

    def _policy_of(self, player: str) -> str:
        member = self._manager.player(player)
        return self._policies[player if member.active else member.parent_id]


def restarts_of(state: Mapping[str, Any]) -> tuple[dict[str, tuple[int, int]], dict[str, Restart]]:
    """Return the players' restarts that were carried out, and those that are pending, from a league's state."""
    restarts = {player: (number, at) for player, (number, at) in state.get("restarts", {}).items()}
    return restarts, {player: Restart(*restart) for player, restart in state.get("pending_restarts", {}).items()}


def _name(source: Path, target: Path) -> None:
    """Link a file to another name, replacing any file of that name, atomically."""
    temporary = target.with_name(f".{target.name}.tmp")
    temporary.unlink(missing_ok=True)
    try:
        os.link(source, temporary)
    except OSError:  # a file system without hard links
        shutil.copyfile(source, temporary)
    os.replace(temporary, target)


def _results(episodes: list[Episode]) -> dict[str, Any]:
    """Return ``results`` and ``returns`` in the form of the league's payoff."""
    results: list[Any] = []
    returns: list[list[float]] = []
    for episode in episodes:
        means = [sum(float(episode.returns[e]) for e in side) / len(side) for side in episode.sides]
        if len(means) == 1:
            results.append(means[0])
        else:
            results.append(ranks_of(scores_of(episode.sides, episode.returns, episode.outcomes)))
            returns.append(means)
    return {"results": results, "returns": returns or None}
