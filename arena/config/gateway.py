"""Where and how players are served over HTTP: ``arena serve`` makes its options of these keys."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from arena.common.validation import Count, Index, Model, Number, Problem, refusal

Seconds = Annotated[Number, Field(gt=0)]


class GatewayConfig(Model):
    """Limits of the server."""

    actor: str = Field("json", description="What plays a game: json, or path/to/file.py:Class.")
    settings: dict[str, Any] = Field({}, description="What the actor is given as its config.")
    agents: dict[str, str] = Field(
        {}, description="Agent: player. Left out: the player of the agent's name, or the only one."
    )
    host: str = Field("127.0.0.1", description="The address to listen on; only this machine reaches the default.")
    port: Annotated[Index, Field(le=65535)] = Field(8000, description="The port; 0 takes any free one.")
    sessions: Annotated[Count, Field(le=65536)] = Field(256, description="How many games may be open at once.")
    max_batch: Annotated[Count, Field(le=4096)] = Field(64, description="How many asks one forward pass answers.")
    max_wait: Annotated[Number, Field(ge=0, le=1)] = Field(
        0.0, description="Seconds that a forward pass waits for others to ask; 0 waits for nobody."
    )
    pin: Literal["session", "newest"] = Field(
        "session", description="Whether a game keeps the version that it began with (session), or not (newest)."
    )
    poll: Seconds = Field(1.0, description="Seconds between two looks for newer versions.")
    max_versions: Annotated[Count, Field(ge=2)] = Field(
        4, description="How many versions of a player are kept for games that began with them."
    )
    actor_threads: Annotated[Index, Field(le=256)] = Field(
        0, description="Threads for actors that wait for something else than the players; 0 calls them in the loop."
    )
    tick_timeout: Seconds = Field(30.0, description="Seconds that an actor may take for one answer.")
    idle_timeout: Seconds = Field(60.0, description="Seconds after its last answer until a silent game is ended.")
    session_timeout: Seconds = Field(86400.0, description="Seconds after its start until a game is ended.")
    drain: Annotated[Number, Field(ge=0)] = Field(
        10.0, description="Seconds that open games have when the server is told to close."
    )
    max_errors: Count = Field(3, description="How often in a row an actor may fail until its game is ended.")
    body_timeout: Seconds = Field(10.0, description="Seconds that a request may take to arrive whole.")
    keep_alive: Seconds = Field(75.0, description="Seconds until a connection without a request is closed.")
    max_body: Annotated[Count, Field(le=1_000_000_000)] = Field(
        1_000_000, description="How many bytes a request may have."
    )
    max_answer: Annotated[Count, Field(le=1_000_000_000)] = Field(
        1_000_000, description="How many bytes an actor's answer may have."
    )
    token_file: str | None = Field(
        None, description="A file with the token that requests must bring; needed where other machines reach the host."
    )
    tls_cert: str | None = Field(None, description="A file with a certificate: the server then speaks HTTPS.")
    tls_key: str | None = Field(None, description="The file with the certificate's key.")
    allow_origins: tuple[str, ...] = Field(
        (), description="Origins of web pages whose scripts may ask, such as http://localhost:3000."
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
