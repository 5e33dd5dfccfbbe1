"""The trade of containers between ports, tick by tick: the rules of the scenario, without entities and rewards."""

from collections import deque

import numpy as np

from arena.common.errors import ConfigError
from arena.envs.ecr.topology import Between, Topology, draw

WINDOW = 7
"""Ticks over which bookings and shortage are averaged in observations."""


class PortState:
    """The containers in a port.

    Attributes:
      name: of the port.
      empties: empty containers.
      full: loaded containers that wait for a vessel, by destination.
      on_shipper: handed out and not returned yet, loaded.
      on_consignee: discharged and not empty yet.
      booked, short: containers that were ordered, and ordered in vain, in each of the last ticks.
    """

    def __init__(self, name: str, empties: int) -> None:
        self.name, self.empties = name, empties
        self.full: dict[int, int] = {}
        self.on_shipper = self.on_consignee = 0
        self.booked: deque[int] = deque([0] * WINDOW, WINDOW)
        self.short: deque[int] = deque([0] * WINDOW, WINDOW)


class VesselState:
    """Position and cargo of a vessel.

    Attributes:
      route: number of its route.
      capacity: number of containers that it holds.
      stop: index on its route of its port, or of the port it sails to.
      empties: empty containers on board.
      full: loaded ones, by destination.
      arrives: tick of its next arrival; in a port, of the last one.
      leaves: tick at which it leaves the port that it is in; -1 at sea.
      left: tick at which it left the last one.
    """

    def __init__(self, route: int, stop: int, capacity: int, leaves: int) -> None:
        self.route, self.stop, self.capacity = route, stop, capacity
        self.empties = 0
        self.full: dict[int, int] = {}
        self.arrives, self.leaves, self.left = 0, leaves, 0

    @property
    def cargo(self) -> int:
        """Loaded containers on board."""
        return sum(self.full.values())

    @property
    def room(self) -> int:
        """Containers that still fit."""
        return self.capacity - self.cargo - self.empties


class Trade:
    """A run of the scenario from its first tick to its last.

    Order of events in a tick: containers return (loaded from shippers, empty from consignees); orders, port by port,
    are served as far as the empties last, the rest is shortage; arriving vessels call, in their order; vessels at the
    end of their stay sail. A vessel that calls discharges the cargo for this port, loads that for the ports ahead, the
    nearest first, sheds empties that no longer fit, and requests a decision on how many empties to load or discharge.

    Attributes:
      tick: the current tick.
      shortage, orders, operations: containers ordered in vain, ordered, and moved by decisions, all ports together.
      ports: by number, in the order of the topology.
      vessels: likewise.
      calling: index of the vessel that requests a decision; None if the run is over.
    """

    def __init__(self, topology: Topology, random: np.random.Generator) -> None:
        """Begin at tick 0."""
        self._topology, self._random = topology, random
        names = list(topology.ports)
        self.ports = [PortState(name, port.empties) for name, port in topology.ports.items()]
        self.routes = [[names.index(stop.port) for stop in stops] for stops in topology.routes.values()]
        self._legs = [[stop.ticks for stop in stops] for stops in topology.routes.values()]
        self._orders = [[(names.index(to), n) for to, n in port.orders.items()] for port in topology.ports.values()]
        route_names = list(topology.routes)
        self.vessels = []
        for vessel in topology.vessels:
            route = route_names.index(vessel.route)
            stop = self.routes[route].index(names.index(vessel.start))
            self.vessels.append(VesselState(route, stop, vessel.capacity, topology.stay))
        # Containers on their way back, by tick: (port, destination or None for a consignee, containers).
        self._returns: dict[int, list[tuple[int, int | None, int]]] = {}
        self.tick = self.shortage = self.orders = self.operations = 0
        self.calling: int | None = None
        self._short = [0] * len(self.ports)  # shortage since the last observation, by port
        self._arriving: deque[int] = deque()
        self._begin_tick()
        self._go_on()

    def port_of(self, vessel: int) -> int:
        """Return the number of the vessel's port, or of the port it sails to."""
        state = self.vessels[vessel]
        return self.routes[state.route][state.stop]

    def bounds(self) -> tuple[int, int]:
        """Return the largest numbers of empties that the calling vessel can load, and discharge."""
        assert self.calling is not None
        vessel = self.vessels[self.calling]
        return min(self.ports[self.port_of(self.calling)].empties, vessel.room), vessel.empties

    def decide(self, empties: int) -> None:
        """Let the calling vessel load this many empties (discharge, if negative), and run to the next decision.

        Raises:
          ValueError: the number is out of bounds.
        """
        most_loaded, most_discharged = self.bounds()
        if not -most_discharged <= empties <= most_loaded:
            raise ValueError(f"expected from {-most_discharged} to {most_loaded} empty containers, found {empties}")
        assert self.calling is not None
        self.ports[self.port_of(self.calling)].empties -= empties
        self.vessels[self.calling].empties += empties
        self.operations += abs(empties)
        self._go_on()

    def shortages(self) -> list[int]:
        """Return the shortage of each port so far."""
        return list(self._short)

    def _go_on(self) -> None:
        """Run until a vessel requests a decision or the last tick is over."""
        self.calling = None
        while True:
            if self._arriving:
                self.calling = self._arriving.popleft()
                self._unload_and_load(self.calling)
                return
            for number, vessel in enumerate(self.vessels):
                if vessel.leaves == self.tick:
                    self._sail(number)
            self.tick += 1
            if self.tick >= self._topology.ticks:
                return
            self._begin_tick()

    def _begin_tick(self) -> None:
        for port, destination, count in self._returns.pop(self.tick, ()):
            if destination is None:
                self.ports[port].on_consignee -= count
                self.ports[port].empties += count
            else:
                self.ports[port].on_shipper -= count
                full = self.ports[port].full
                full[destination] = full.get(destination, 0) + count
        for number, (state, orders) in enumerate(zip(self.ports, self._orders, strict=True)):
            booked = short = 0
            for destination, amount in orders:
                demand = draw(amount, self._random)
                served = min(demand, state.empties)
                state.empties -= served
                booked, short = booked + demand, short + demand - served
                if served:
                    state.on_shipper += served
                    self._return(number, destination, served)
            state.booked.append(booked)
            state.short.append(short)
            self._short[number] += short
            self.orders, self.shortage = self.orders + booked, self.shortage + short
        at_sea = [number for number, vessel in enumerate(self.vessels) if vessel.leaves < 0]
        self._arriving = deque(number for number in at_sea if self.vessels[number].arrives == self.tick)

    def _return(self, port: int, destination: int | None, count: int) -> None:
        due = self.tick + self._topology.handling
        self._returns.setdefault(due, []).append((port, destination, count))

    def _sail(self, number: int) -> None:
        vessel = self.vessels[number]
        ticks = draw(self._legs[vessel.route][vessel.stop], self._random)
        vessel.stop = (vessel.stop + 1) % len(self.routes[vessel.route])
        vessel.arrives, vessel.leaves, vessel.left = self.tick + ticks, -1, self.tick

    def _unload_and_load(self, number: int) -> None:
        vessel, here = self.vessels[number], self.port_of(number)
        port, route = self.ports[here], self.routes[vessel.route]
        vessel.leaves = self.tick + self._topology.stay
        discharged = vessel.full.pop(here, 0)
        if discharged:
            port.on_consignee += discharged
            self._return(here, None, discharged)
        for ahead in range(1, len(route)):
            to = route[(vessel.stop + ahead) % len(route)]
            loaded = min(port.full.get(to, 0), vessel.capacity - vessel.cargo)
            if loaded:
                port.full[to] -= loaded
                vessel.full[to] = vessel.full.get(to, 0) + loaded
        too_many = max(0, -vessel.room)
        vessel.empties -= too_many
        port.empties += too_many

    def next_due(self, port: int) -> tuple[int, int]:
        """Return the vessel that arrives next at a port, without one that is there, and the ticks to its arrival.

        Random sailing times on its way count by their mean.
        """
        best, soonest = -1, np.inf
        for number, vessel in enumerate(self.vessels):
            route, legs = self.routes[vessel.route], self._legs[vessel.route]
            if port not in route:
                continue
            stop = vessel.stop
            if vessel.leaves >= 0:  # it is in a port: its next stop is one leg away
                wait = max(0, vessel.leaves - self.tick) + _mean(legs[stop])
                stop = (stop + 1) % len(route)
            else:
                wait = vessel.arrives - self.tick
            while route[stop] != port:
                wait += self._topology.stay + _mean(legs[stop])
                stop = (stop + 1) % len(route)
            if wait < soonest:
                best, soonest = number, wait
        if best < 0:
            raise ConfigError(f"no vessel calls at {self.ports[port].name}")
        return best, int(soonest)


def _mean(amount: int | Between) -> float:
    return (amount.low + amount.high) / 2 if isinstance(amount, Between) else amount
