"""External games over HTTP: the server, its sessions, users' actors, batches of forward passes.

A server of trained players gets them from its caller: ``evaluation`` reads the files of runs. In a run (``training``)
the players are workers on the seats of a match; only that part uses MPI.
"""

from arena.gateway.actors.actor import Actor, AgentSpaces
from arena.gateway.actors.agent import Agent, Agents
from arena.gateway.http.responses import BadRequest
from arena.gateway.remote import RemoteModel
from arena.gateway.training.remote_agents import RemoteBuffer, RemoteTrainer

__all__ = ["Actor", "Agent", "AgentSpaces", "Agents", "BadRequest", "RemoteBuffer", "RemoteModel", "RemoteTrainer"]
