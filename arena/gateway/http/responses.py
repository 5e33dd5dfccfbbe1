"""Responses, and refusals with a code for programs and a sentence for people."""

import json
from typing import Any, NamedTuple

JSON = b"application/json"
Headers = tuple[tuple[bytes, bytes], ...]


class Response(NamedTuple):
    """A response to a client.

    Attributes:
      body: bytes of the body.
      content_type: content type of the body.
      headers: headers besides content-type and content-length.
      status: HTTP status.
      replayed: whether it was sent before.
      handed_on: whether another process of this server has produced, and counted it.
    """

    body: bytes
    content_type: bytes = JSON
    headers: Headers = ()
    status: int = 200
    replayed: bool = False
    handed_on: bool = False


def json_response(value: Any, status: int = 200, headers: Headers = ()) -> Response:
    """Return a response in JSON."""
    return Response(json.dumps(value).encode(), JSON, headers, status)


class Refusal(Exception):
    """A request that is refused.

    Attributes:
      status: HTTP status.
      code: one word for programs.
      text: the sentence: what was expected, what was found.
      headers: headers besides those of every response.
    """

    def __init__(self, status: int, code: str, text: str, *headers: tuple[bytes, bytes], close: bool = False) -> None:
        """Describe the refusal.

        Args:
          status: HTTP status.
          code: one word for programs.
          text: the sentence.
          headers: headers besides those of every response.
          close: whether the connection ends with the response.
        """
        super().__init__(text)
        self.status, self.code, self.text = status, code, text
        self.headers: Headers = (*headers, (b"connection", b"close")) if close else headers

    def response(self, number: str) -> Response:
        """Return the response; ``number`` is the request's number in the log."""
        return json_response({"error": self.text, "code": self.code, "id": number}, self.status, self.headers)


class BadRequest(ValueError):
    """Raised by an actor for bytes that it cannot read: the client gets the message, and the game stays open."""


def shown(value: Any) -> str:
    """Return a client's value for a message: at most 40 characters, escaped; ``none`` for None."""
    if value is None:
        return "none"
    text = value.decode("latin-1") if isinstance(value, bytes) else str(value)
    return ascii(text if len(text) <= 40 else text[:37] + "...")
