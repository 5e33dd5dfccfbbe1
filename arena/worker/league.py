"""League workers: opponents on the lanes that are not their player's own."""

from typing import Any

from arena.common import registry
from arena.common.errors import ConfigError
from arena.common.seeding import derive_seed
from arena.group.context import Context
from arena.protocol.seat import SeatOffer
from arena.records.run_directory import RunDirectory
from arena.worker.opponents import Opponents


def opponents_of(
    context: Context, player: str, offer: SeatOffer, environment_rank: int, seed: int, horizon: int
) -> Opponents | None:
    """Return the opponents on a seat's lanes; None without a league.

    Args:
      context: context of the rank.
      player: the player of the seat.
      offer: description of the seat.
      environment_rank: rank that sends jobs.
      seed: root of the opponents' random streams.
      horizon: time steps of the player's rollouts.

    Raises:
      ConfigError: the entities of the seat have different spaces.
    """
    config = context.config
    if config.league is None:
        return None
    if len(offer.distinct_spaces()) > 1:
        names = ", ".join(entity.name for entity in offer.entities)
        raise ConfigError(f"a league needs the same spaces for all entities of a side; those of {names} differ")
    run = RunDirectory(config.run_root, config.name)
    spaces, lanes = offer.entities[0], offer.copies * len(offer.entities)

    def make(policy: str, path: str) -> Any:
        chosen = config.policies[policy]
        drawn = derive_seed(seed, "opponent", path)
        opponent = registry.build_policy(chosen.use, spaces, chosen.settings, lanes=lanes, seed=drawn)
        registry.load_policy_weights(opponent, run.path / path)
        return opponent

    mailbox, waiter, cache = context.mailbox, context.waiter, config.league.cache
    return Opponents(offer, player, environment_rank, mailbox, waiter, make, cache=cache, horizon=horizon)
