"""Resets that seats request, and the truncation of the episodes that they interrupt."""

from collections.abc import Iterable, Sequence

from arena.environment.episodes.starts import EpisodeStarts
from arena.environment.match import MatchState
from arena.protocol.seat import ResetRequest
from arena.protocol.wire import RESET


class RequestedResets:
    """Resets copies on request of a seat, after the other seats have received the truncation of their episodes."""

    def __init__(self, match: MatchState, starts: EpisodeStarts) -> None:
        """Create it without a pending reset."""
        self._match, self._starts = match, starts
        self._running = match.episodes.by_env
        # By batch: the pending requests of seats and the copies to reset, while others receive truncations.
        self._pending: dict[int, tuple[dict[int, ResetRequest], list[bool]]] = {}

    def is_requested(self, batch: int, commands: Sequence[int]) -> bool:
        """Return whether a reset is requested that differs from a step after the end of every copy's episode."""
        if RESET not in commands:
            return False
        match, numbers = self._match, [number for _, number in self._match.numbers[batch]]
        return (
            batch in self._pending
            or match.job_queue is not None
            or not match.late.isdisjoint(numbers)
            or not all(self._running[number].over for number in numbers)
            or any(message.header[1] for message in match.channel.messages[batch])  # the reset has arguments
        )

    def cancel(self, batch: int) -> Iterable[int]:
        """Drop a pending reset; return the seats whose side messages it has received."""
        return self._pending.pop(batch, ({}, []))[0]

    def reset(self, batch: int) -> bool:
        """Reset copies on request of a seat.

        The other seats first receive the truncation of their episodes. Return False until all of them have replied: one
        with several batches may first wait for the message of another batch.
        """
        match = self._match
        seats = range(len(match.setup.match.seats))
        start, copies = match.slices[batch].start, match.writers[batch].copies
        if batch in self._pending:
            requests, selected = self._pending.pop(batch)
            requests.update(self._receive_requests(batch, [s for s in seats if s not in requests]))
        else:
            requests = self._receive_requests(batch, seats)
            selected = [any(r.mask is None or r.mask[c] for r in requests.values()) for c in range(copies)]
            others = [s for s in seats if s not in requests]
            interrupted = [c for c in range(copies) if selected[c] and not self._running[start + c].over]
            self._truncate_episodes(batch, interrupted, min(requests))
            if interrupted and others:
                self._notify_truncated(batch, interrupted, others, min(requests))
                self._pending[batch] = requests, selected
                return False
        self._reset_copies(batch, requests, selected)
        return True

    def _receive_requests(self, batch: int, seats: Iterable[int]) -> dict[int, ResetRequest]:
        """Return the request of each of these seats that has sent one."""
        requests = {}
        for s in seats:
            message = self._match.channel.messages[batch][s]
            if message.header[0] == RESET:
                side = self._match.channel.take_side(batch, s) if message.header[1] else None
                requests[s] = side or ResetRequest(None, None, None)
        return requests

    def _reset_copies(self, batch: int, requests: dict[int, ResetRequest], selected: Sequence[bool]) -> None:
        match, writer, start = self._match, self._match.writers[batch], self._match.slices[batch].start
        writer.begin()
        options = next((r.options for r in requests.values() if r.options is not None), None)
        for copy in range(writer.copies):
            number = start + copy
            if selected[copy]:
                match.late.discard(number)
                match.started.pop(number, None)
                seed = match.next_seed(number)
                for request in requests.values():
                    if request.seeds is not None and request.seeds[copy] is not None:
                        seed = request.seeds[copy]
                match.copies.begin_reset(number, seed, options)
        for copy in range(writer.copies):
            number = start + copy
            if selected[copy]:
                self._starts.finish_start(batch, copy)
            elif number in match.late:
                writer.write_idle(copy)
            else:
                unchanged = self._running[number].timestep._replace(infos=[{}] * len(match.entities))
                writer.write(copy, unchanged, started=False)
        writer.finish()
        match.send_sides(batch)

    def _truncate_episodes(self, batch: int, copies: Iterable[int], by: int) -> None:
        """End the episodes of copies that a seat resets before their end."""
        start = self._match.slices[batch].start
        for copy in copies:
            running = self._running[start + copy]
            if running.length:
                final = self._match.truncated(running.timestep, {})
                self._match.episodes.finish(start + copy, final, f"reset_by:{by}")

    def _notify_truncated(self, batch: int, copies: Sequence[int], others: Sequence[int], by: int) -> None:
        """Send other seats the truncation of their episodes."""
        match, writer, start = self._match, self._match.writers[batch], self._match.slices[batch].start
        writer.begin()
        for copy in range(writer.copies):
            timestep = self._running[start + copy].timestep
            if copy in copies:
                timestep = match.truncated(timestep, {"reset_by": by})
            writer.write(copy, timestep, started=False)
        writer.finish()
        match.send_sides(batch, others)
        for seat in others:
            match.channel.send_to(batch, seat)
