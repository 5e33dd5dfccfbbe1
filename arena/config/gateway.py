"""Where and how players are served over HTTP: ``arena serve`` makes its options of these keys."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from arena.common.validation import Count, Index, Model, Number, Problem, refusal

Seconds = Annotated[Number, Field(gt=0)]


class GatewayConfig(Model):
    """Limits of the server."""

    actor: str = Field("json", description="The actor of each game: json, or path/to/file.py:Class.")
    settings: dict[str, Any] = Field({}, description="The mapping that the actor gets as its config.")
    agents: dict[str, str] = Field(
        {}, description="A mapping agent: player. Default: the player with the agent's name, or the only player."
    )
    host: str = Field(
        "127.0.0.1", description="Address to listen on. The default can be reached from this machine only."
    )
    port: Annotated[Index, Field(le=65535)] = Field(8000, description="The port; 0 takes any free one.")
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
    actor_threads: Annotated[Index, Field(le=256)] = Field(
        0, description="Threads for actors whose methods block; 0 calls the methods in the event loop."
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
        (), description="Origins of web pages whose scripts may send requests, such as http://localhost:3000."
    )
    access_log: bool = Field(False, strict=True, description="Write a line for each request to standard error.")

    @model_validator(mode="after")
    def _consistent(self) -> "GatewayConfig":
        wrong = []
        for name, other in (("tls_key", "tls_cert"), ("tls_cert", "tls_key")):
            if getattr(self, name) is None and getattr(self, other) is not None:
                wrong.append(Problem((name,), f"expected a file beside {other}, found none"))
        if wrong:
            raise refusal(wrong)
        return self
