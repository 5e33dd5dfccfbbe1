"""Settings of HTTP servers for external games, of ``arena serve`` and of gateways in a run."""

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from arena.common.validation import Count, Index, Model, Number, Problem, refusal
from arena.config.files import located

Seconds = Annotated[Number, Field(gt=0)]


class ServerConfig(Model):
    """Limits of a server."""

    host: str = Field(
        "127.0.0.1", description="Address to listen on. The default can be reached from this machine only."
    )
    port: Annotated[Index, Field(le=65535)] = Field(8000, description="The port; 0 takes any free one.")
    actor_threads: Annotated[Index, Field(le=256)] = Field(
        0, description="Threads for actors with methods that block; 0 calls the methods in the event loop."
    )
    tick_timeout: Seconds = Field(30.0, description="Seconds that an actor may take for one answer.")
    idle_timeout: Seconds = Field(60.0, description="Seconds after its last answer until a silent game is ended.")
    session_timeout: Seconds = Field(86400.0, description="Seconds after its start until a game is ended.")
    drain: Annotated[Number, Field(ge=0)] = Field(
        10.0, description="Seconds that open games have to end when the server shuts down."
    )
    max_errors: Count = Field(3, description="Number of failures in a row after which an actor's game is ended.")
    body_timeout: Seconds = Field(10.0, description="Seconds in which a request must arrive completely.")
    keep_alive: Seconds = Field(75.0, description="Seconds until a connection without a request is closed.")
    max_body: Annotated[Count, Field(le=1_000_000_000)] = Field(
        1_000_000, description="Largest size of a request, in bytes."
    )
    max_answer: Annotated[Count, Field(le=1_000_000_000)] = Field(
        1_000_000, description="Largest size of an actor's answer, in bytes."
    )
    token_file: str | None = Field(
        None,
        description="A file with the token that each request must contain; required if other machines can "
        "reach the host.",
    )
    tls_cert: str | None = Field(None, description="A file with a certificate: the server then speaks HTTPS.")
    tls_key: str | None = Field(None, description="The file with the certificate's key.")
    allow_origins: tuple[str, ...] = Field(
        (), description="Origins of web pages with scripts that may send requests, such as http://localhost:3000."
    )
    access_log: bool = Field(False, strict=True, description="Write a line for each request to standard error.")

    @model_validator(mode="after")
    def _consistent(self) -> "ServerConfig":
        wrong = []
        for name, other in (("tls_key", "tls_cert"), ("tls_cert", "tls_key")):
            if getattr(self, name) is None and getattr(self, other) is not None:
                wrong.append(Problem((name,), f"expected a file beside {other}, found none"))
        if wrong:
            raise refusal(wrong)
        return self


class ActorServerConfig(ServerConfig):
    """Settings of a server of games that actors play."""

    actor: str = Field("json", description="The actor of each game: json, or path/to/file.py:Class.")
    settings: dict[str, Any] = Field({}, description="The mapping that the actor gets as its config.")

    @field_validator("actor")
    @classmethod
    def _located(cls, actor: str, info: ValidationInfo) -> str:
        return located(actor, info)


class GatewayConfig(ActorServerConfig):
    """Settings of `arena serve`, which makes options of these keys."""

    agents: dict[str, str] = Field(
        {}, description="A mapping agent: player. Default: the player with the agent's name, or the only player."
    )
    sessions: Annotated[Count, Field(le=65536)] = Field(
        256, description="Number of games that may be open at the same time."
    )
    max_batch: Annotated[Count, Field(le=4096)] = Field(
        64, description="Largest number of requests that one forward pass answers."
    )
    max_wait: Annotated[Number, Field(ge=0, le=1)] = Field(
        0.0, description="Seconds that a forward pass waits for more requests; 0 does not wait."
    )
    pin: Literal["session", "newest"] = Field(
        "session",
        description="Weights that a game uses: session keeps the version of its start, newest always takes "
        "the newest version.",
    )
    poll: Seconds = Field(1.0, description="Seconds between two checks for newer versions.")
    max_versions: Annotated[Count, Field(ge=2)] = Field(
        4, description="Number of versions of a player that are kept for games that started with them."
    )


class GatewaySettings(ActorServerConfig):
    """Settings of the environment `gateway`: external games with agents that learn."""

    game: str | None = Field(
        None,
        description="With actor: json, the environment that the games outside are copies of, such as "
        "gymnasium:CartPole-v1. It is made once, for the names and spaces of its agents, and never stepped.",
    )
    game_settings: dict[str, Any] = Field({}, description="Keyword arguments of game.")
    spaces: dict[str, dict[str, Any]] | None = Field(
        None,
        description="With actor: json, instead of game: a mapping of each agent to its observation and action space, "
        "written as in spaces.json of a player, and masked: true if it has an action mask.",
    )

    agents: tuple[str, ...] = Field(
        (),
        description="Names of the agents of an actor without spaces, since its policies are trainers of "
        "your own, which learn from what it pushes.",
    )

    @model_validator(mode="after")
    def _has_spaces(self) -> "GatewaySettings":
        present = [name for name in ("game", "spaces") if getattr(self, name) is not None]
        if self.actor != "json" and present:
            text = (
                f"expected none beside an actor of your own, with a class that defines its spaces, found {present[0]}"
            )
            raise refusal([Problem((present[0],), text)])
        if self.actor == "json" and len(present) != 1:
            text = "expected game or spaces, from which the json actor knows its agents, found "
            raise refusal([Problem((), text + (" and ".join(present) or "none"))])
        return self


class ExternalSettings(ServerConfig):
    """Settings of the policy `external`: the server of the guest on the seat."""
