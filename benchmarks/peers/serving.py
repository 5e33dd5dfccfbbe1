"""Servers to compare the arena's with: ``python -m benchmarks.peers.serving echo|ray PORT``, until it is ended."""

import sys
from typing import Any


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Send the request's body back; an ASGI application."""
    message = await receive()
    body = message["body"]
    while message.get("more_body"):
        message = await receive()
        body += message["body"]
    headers = [(b"content-type", b"application/octet-stream"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def serve_echo(port: int) -> None:
    """Serve the echo with uvicorn in its fastest configuration."""
    import uvicorn

    uvicorn.run(
        echo,
        port=port,
        http="httptools",
        loop="uvloop",
        ws="none",
        lifespan="off",
        interface="asgi3",
        access_log=False,
        server_header=False,
        log_level="error",
    )


def serve_ray(port: int) -> None:
    """Serve a network of 64x64 with Ray Serve, in batches."""
    import json
    import signal

    import numpy as np
    import torch
    from ray import serve
    from starlette.requests import Request

    torch.set_num_threads(1)

    @serve.deployment(max_ongoing_requests=256)
    class Player:
        def __init__(self) -> None:
            layers = [torch.nn.Linear(4, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64), torch.nn.Tanh()]
            self.network = torch.nn.Sequential(*layers, torch.nn.Linear(64, 2))

        @serve.batch(max_batch_size=64, batch_wait_timeout_s=0.0)
        async def act(self, observations: list) -> list:
            with torch.inference_mode():
                outputs = self.network(torch.from_numpy(np.array(observations, np.float32)))
            return outputs.argmax(-1).tolist()

        async def __call__(self, request: Request) -> dict:
            said = json.loads(await request.body())
            return {"action": await self.act(said["observation"])}

    serve.start(http_options={"port": port, "host": "127.0.0.1"}, logging_config={"log_level": "ERROR"})
    serve.run(Player.bind(), name="player", route_prefix="/step")
    print("ready", flush=True)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    serve.shutdown()


if __name__ == "__main__":
    {"echo": serve_echo, "ray": serve_ray}[sys.argv[1]](int(sys.argv[2]))
