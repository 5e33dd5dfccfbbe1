"""Topologies of empty container repositioning: ports, routes, vessels and orders, read from YAML."""

from pathlib import Path
from typing import Annotated

import numpy as np
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from arena.common.errors import ConfigError
from arena.common.text import suggestion

FOLDER = Path(__file__).parent / "topologies"

Count = Annotated[int, Field(ge=0)]
Ticks = Annotated[int, Field(ge=1)]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Between(_Model):
    """A random integer, uniform from ``low`` to ``high``, both included."""

    low: Count
    high: Count

    @model_validator(mode="after")
    def _in_order(self) -> "Between":
        if self.high < self.low:
            raise ValueError(f"expected a high of at least low ({self.low}), found {self.high}")
        return self


Amount = Count | Between


class Port(_Model):
    """A port: its initial empty containers, and the orders there in each tick, by destination."""

    empties: Count
    orders: dict[str, Amount] = {}


class Stop(_Model):
    """A stop of a route, and the ticks from there to the next one."""

    port: str
    ticks: Ticks | Between


class Vessel(_Model):
    """A vessel: its route, its first port, and its capacity in containers."""

    route: str
    start: str
    capacity: Count


class Topology(_Model):
    """The description of a scenario."""

    ticks: Ticks = 1120
    stay: Ticks = 1
    handling: Ticks = 1
    ports: Annotated[dict[str, Port], Field(min_length=2)]
    routes: Annotated[dict[str, Annotated[tuple[Stop, ...], Field(min_length=2)]], Field(min_length=1)]
    vessels: Annotated[tuple[Vessel, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _connected(self) -> "Topology":
        ports = ", ".join(self.ports)
        for name, stops in self.routes.items():
            for stop in stops:
                if stop.port not in self.ports:
                    raise ValueError(f"routes.{name}: expected one of {ports}, found {stop.port!r}")
            if len({stop.port for stop in stops}) < len(stops):
                raise ValueError(f"routes.{name}: expected each port once")
        for index, vessel in enumerate(self.vessels):
            if vessel.route not in self.routes:
                routes = ", ".join(self.routes)
                raise ValueError(f"vessels.{index}.route: expected one of {routes}, found {vessel.route!r}")
            if vessel.start not in {stop.port for stop in self.routes[vessel.route]}:
                raise ValueError(f"vessels.{index}.start: route {vessel.route} does not call at {vessel.start!r}")
        called = {stop.port for vessel in self.vessels for stop in self.routes[vessel.route]}
        for name, port in self.ports.items():
            if name not in called:
                raise ValueError(f"ports.{name}: no vessel calls there; expected one on a route through it")
            for to in port.orders:
                shared = any({name, to} <= {stop.port for stop in stops} for stops in self.routes.values())
                if to == name or not shared:
                    raise ValueError(f"ports.{name}.orders: no route leads from {name!r} to {to!r}")
        return self


def read_topology(name: str) -> Topology:
    """Return a topology by the name of a built-in one, or by the path of a YAML file.

    Raises:
      ConfigError: there is none, or it is invalid; the message states where and what was expected.
    """
    known = sorted(path.stem for path in FOLDER.glob("*.yaml"))
    path = FOLDER / f"{name}.yaml" if name in known else Path(name)
    if not path.is_file():
        raise ConfigError(
            f"topology: expected one of {', '.join(known)} or the path of a YAML file, found {name!r}"
            f"{suggestion(name, known)}"
        )
    try:
        return Topology(**(yaml.safe_load(path.read_text("utf-8")) or {}))
    except (yaml.YAMLError, TypeError) as error:
        raise ConfigError(f"topology {path}: expected keys of a topology in YAML, found: {error}") from error
    except ValidationError as error:
        wrong = "; ".join(
            f"{'.'.join(map(str, item['loc']))}: {item['msg'].removeprefix('Value error, ')}".removeprefix(": ")
            for item in error.errors()
        )
        raise ConfigError(f"topology {path}: {wrong}") from error


def draw(amount: int | Between, random: np.random.Generator) -> int:
    """Return a number, sampled if it is a ``Between``."""
    if isinstance(amount, Between):
        return int(random.integers(amount.low, amount.high, endpoint=True))
    return amount
