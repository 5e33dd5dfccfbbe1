"""Games outside ask trained players over HTTP: the server, its sessions, users' actors, batches of forward passes.

What the server serves it is handed: files of runs are read by ``evaluation``, and only ``process`` will know of MPI.
"""

from arena.gateway.actors.actor import Actor, AgentSpaces
from arena.gateway.actors.agent import Agent, Agents
from arena.gateway.answers import BadRequest
from arena.gateway.remote import RemoteModel

__all__ = ["Actor", "Agent", "AgentSpaces", "Agents", "BadRequest", "RemoteModel"]
