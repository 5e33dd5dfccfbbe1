"""Games outside ask players over HTTP: the server, its sessions, users' actors, batches of forward passes.

What a server of trained players serves it is handed: files of runs are read by ``evaluation``. In a run
(``training``) the players are workers on the seats of a match; MPI is known only there.
"""

from arena.gateway.actors.actor import Actor, AgentSpaces
from arena.gateway.actors.agent import Agent, Agents
from arena.gateway.answers import BadRequest
from arena.gateway.remote import RemoteModel
from arena.gateway.training.remote_agents import RemoteBuffer, RemoteTrainer

__all__ = ["Actor", "Agent", "AgentSpaces", "Agents", "BadRequest", "RemoteBuffer", "RemoteModel", "RemoteTrainer"]
