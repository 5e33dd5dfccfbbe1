"""Where and how players are served over HTTP: ``arena serve`` makes its options of these keys."""

from typing import Annotated

from pydantic import Field

from arena.common.validation import Count, Index, Model, Number

Seconds = Annotated[Number, Field(gt=0)]


class GatewayConfig(Model):
    """Limits of the server."""

    host: str = Field("127.0.0.1", description="The address to listen on; only this machine reaches the default.")
    port: Annotated[Index, Field(le=65535)] = Field(8000, description="The port; 0 takes any free one.")
    sessions: Annotated[Count, Field(le=65536)] = Field(256, description="How many games may be open at once.")
    max_batch: Annotated[Count, Field(le=4096)] = Field(64, description="How many asks one forward pass answers.")
    max_wait: Annotated[Number, Field(ge=0, le=1)] = Field(
        0.0, description="Seconds that a forward pass waits for others to ask; 0 waits for nobody."
    )
    keep_alive: Seconds = Field(75.0, description="Seconds until a connection without a request is closed.")
    max_body: Annotated[Count, Field(le=1_000_000_000)] = Field(
        1_000_000, description="How many bytes a request may have."
    )
