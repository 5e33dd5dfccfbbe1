"""Empty container repositioning (ECR) as an environment: one entity per port, which decides when a vessel calls."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from arena.common.errors import ConfigError
from arena.envs.ecr.drawing import draw_trade
from arena.envs.ecr.simulation import Trade
from arena.envs.ecr.topology import read_topology
from arena.envs.interface import EntitySpaces, Timestep

ACTIONS = 21
STAY = ACTIONS // 2
SEEN = 8  # numbers about each of three ports
PORTS_SEEN = 3  # the port and the next two on the vessel's route
REWARD_UNIT = 1000  # containers


class EmptyContainers:
    """Ports trade full containers by orders; an order that finds no empty container is shortage.

    The scenario is that of MARO (microsoft/maro, ``examples/ecr``); ``Trade`` has its rules. One step is the decision
    of one port, at which a vessel has just called. At the last tick the episode is truncated.

    Actions: ``Discrete(21)``, fractions from -1 to 1 in steps of 0.1. Below 10 that part of what can be loaded is
    loaded onto the vessel (0: all), above 10 that part of the empties on board is discharged (20: all), 10 does
    nothing; rounded to whole containers.

    Observations, float32 ``[24 + 5 + routes]``, all containers divided by the mean stock of empties of a port at the
    start, ticks by 10: for the port and the next two on the vessel's route: empties, full ones that wait, on shipper,
    on consignee, mean bookings and mean shortage of the last 7 ticks, empties on board of the next vessel due, ticks
    until it comes; of the vessel: empties, full ones, free room, what can be loaded, what can be discharged; its
    route, one-hot.

    Rewards: minus the shortage of all ports (``own``: of the port alone) since its last decision, in thousands.

    ``info["metrics"]`` of every entity at the end: ``shortage``, ``orders`` and ``operations`` (containers moved by
    decisions) of all ports together.
    """

    turn_based = True

    def __init__(
        self,
        topology: str = "toy_4p_ssdd",
        *,
        ticks: int | None = None,
        reward: str = "team",
        masks: bool = False,
    ) -> None:
        """Set up the scenario.

        Args:
          topology: name of a built-in one, or the path of a YAML file.
          ticks: length of an episode; by default the topology's.
          reward: ``team`` or ``own``.
          masks: whether fractions that move nothing are forbidden, except for 10.

        Raises:
          ConfigError: a setting is none of these, or the topology is invalid.
        """
        self._topology = read_topology(topology)
        if ticks is not None:
            if isinstance(ticks, bool) or not isinstance(ticks, int) or ticks < 1:
                raise ConfigError(f"ecr: ticks: expected a whole number of at least 1, found {ticks!r}")
            self._topology = self._topology.model_copy(update={"ticks": ticks})
        if reward not in ("team", "own"):
            raise ConfigError(f"ecr: reward: expected team or own, found {reward!r}")
        self._own, self._masks = reward == "own", bool(masks)
        names, routes = list(self._topology.ports), len(self._topology.routes)
        observation = spaces.Box(-np.inf, np.inf, (PORTS_SEEN * SEEN + 5 + routes,), np.float32)
        self.entities = tuple(
            EntitySpaces(name, observation, spaces.Discrete(ACTIONS), ACTIONS if masks else 0) for name in names
        )
        stock = [port.empties for port in self._topology.ports.values()]
        self._unit = max(1.0, sum(stock) / len(stock))
        self._random = np.random.default_rng()
        self._trade: Trade | None = None

    # Stepping

    def reset(self, seed: int | None = None, options: dict | None = None) -> Timestep:
        """Begin at tick 0, and run to the first decision."""
        if seed is not None:
            self._random = np.random.default_rng(seed)
        self._trade = trade = Trade(self._topology, self._random)
        count = len(self.entities)
        self._reported = [trade.shortages()] * count  # shortages that rewards have covered so far, by entity
        self._seen = [self._observe(trade, port, trade.next_due(port)[0]) for port in range(count)]
        return self._timestep(trade, first=True)

    def step(self, actions: Sequence[Any]) -> Timestep:
        """Apply the decision of the entity that acts, and run to the next one.

        Raises:
          ValueError: its action is not one of the 21.
        """
        trade = self._trade
        assert trade is not None and trade.calling is not None
        port = trade.port_of(trade.calling)
        action = int(actions[port])
        if not 0 <= action < ACTIONS:
            raise ValueError(f"{self.entities[port].name}: expected an action from 0 to {ACTIONS - 1}, found {action}")
        trade.decide(_containers(action, *trade.bounds()))
        return self._timestep(trade)

    def _timestep(self, trade: Trade, *, first: bool = False) -> Timestep:
        count, over = len(self.entities), trade.calling is None
        rewards, acting, masks = [0.0] * count, [False] * count, [self._any() for _ in range(count)]
        observing = list(range(count)) if trade.calling is None else [trade.port_of(trade.calling)]
        for entity in observing:
            vessel = trade.next_due(entity)[0] if trade.calling is None else trade.calling
            self._seen[entity] = self._observe(trade, entity, vessel)
            if not first:
                rewards[entity] = self._earned(trade, entity)
            if not over:
                acting[entity] = True
                if self._masks:
                    masks[entity] = _mask(*trade.bounds())
        infos: list[dict] = [{} for _ in range(count)]
        if over:
            counts = {"shortage": trade.shortage, "orders": trade.orders, "operations": trade.operations}
            infos = [{"metrics": dict(counts)} for _ in infos]
        return Timestep(
            observations=tuple(self._seen),
            rewards=tuple(rewards),
            terminated=(False,) * count,
            truncated=(over,) * count,
            infos=tuple(infos),
            acting=tuple(acting),
            action_masks=tuple(masks),
            over=over,
        )

    def _earned(self, trade: Trade, entity: int) -> float:
        """Return an entity's reward since its last decision."""
        shortage = trade.shortages()
        since = [now - before for now, before in zip(shortage, self._reported[entity], strict=True)]
        self._reported[entity] = shortage
        return -(since[entity] if self._own else sum(since)) / REWARD_UNIT

    def _any(self) -> np.ndarray | None:
        return np.ones(ACTIONS, np.int8) if self._masks else None

    def _observe(self, trade: Trade, port: int, vessel: int) -> np.ndarray:
        """Return the observation of a port with a vessel in it, or coming."""
        ship, unit = trade.vessels[vessel], self._unit
        route = trade.routes[ship.route]
        place = route.index(port)
        features: list[float] = []
        for ahead in range(PORTS_SEEN):
            other = route[(place + ahead) % len(route)]
            state = trade.ports[other]
            due, ticks = trade.next_due(other)
            features += [
                state.empties / unit,
                sum(state.full.values()) / unit,
                state.on_shipper / unit,
                state.on_consignee / unit,
                sum(state.booked) / len(state.booked) / unit,
                sum(state.short) / len(state.short) / unit,
                trade.vessels[due].empties / unit,
                ticks / 10,
            ]
        loads, discharges = trade.bounds() if vessel == trade.calling else (0, 0)
        features += [ship.empties / unit, ship.cargo / unit, ship.room / unit, loads / unit, discharges / unit]
        features += [float(ship.route == number) for number in range(len(trade.routes))]
        return np.array(features, np.float32)

    # Rendering

    def render(self) -> np.ndarray | None:
        """Return ports and vessels as a picture, uint8 ``[height, width, 3]``; None before the first reset."""
        return None if self._trade is None else draw_trade(self._trade, self._topology)

    def text(self) -> str:
        """Return ports and vessels as a table, for a terminal."""
        trade = self._trade
        if trade is None:
            return "not begun"
        lines = [
            f"tick {trade.tick} of {self._topology.ticks}: shortage {trade.shortage:,} of {trade.orders:,} orders",
            f"{'port':8}{'empties':>10}{'full':>10}{'shipper':>10}{'consignee':>10}{'short':>10}",
        ]
        for port, short in zip(trade.ports, trade.shortages(), strict=True):
            lines.append(
                f"{port.name:8}{port.empties:10,}{sum(port.full.values()):10,}{port.on_shipper:10,}"
                f"{port.on_consignee:10,}{short:10,}"
            )
        lines.append(f"{'vessel':8}{'empties':>10}{'full':>10}{'room':>10}  where")
        for number, ship in enumerate(trade.vessels):
            name = trade.ports[trade.port_of(number)].name
            where = f"in {name}" if ship.leaves >= 0 else f"to {name}, in {ship.arrives - trade.tick} ticks"
            called = list(self._topology.routes)[ship.route]
            lines.append(f"{number} {called:6}{ship.empties:10,}{ship.cargo:10,}{ship.room:10,}  {where}")
        return "\n".join(lines)

    def close(self) -> None:
        """Do nothing: it holds no resources."""


def _containers(action: int, most_loaded: int, most_discharged: int) -> int:
    """Return the empties that an action loads, or discharges if negative."""
    if action <= STAY:
        return round((STAY - action) * most_loaded / STAY)
    return -round((action - STAY) * most_discharged / STAY)


def _mask(most_loaded: int, most_discharged: int) -> np.ndarray:
    moves = [_containers(action, most_loaded, most_discharged) != 0 for action in range(ACTIONS)]
    moves[STAY] = True
    return np.array(moves, np.int8)
