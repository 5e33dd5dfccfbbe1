"""What a client gets: an answer, or a refusal with a code that programs read and a sentence that people read."""

import json
from typing import Any, NamedTuple

JSON = b"application/json"
Headers = tuple[tuple[bytes, bytes], ...]


class Answer(NamedTuple):
    """What a client gets where nothing is refused.

    Attributes:
      body: its bytes.
      content_type: of the body.
      headers: beside content-type and content-length.
      status: of HTTP.
      replayed: whether it was sent before.
      handed_on: whether another process of this server has answered, and counted it.
    """

    body: bytes
    content_type: bytes = JSON
    headers: Headers = ()
    status: int = 200
    replayed: bool = False
    handed_on: bool = False


def json_answer(value: Any, status: int = 200, headers: Headers = ()) -> Answer:
    """Return an answer in JSON."""
    return Answer(json.dumps(value).encode(), JSON, headers, status)


class Refusal(Exception):
    """A request that is not answered with what was asked for.

    Attributes:
      status: of HTTP.
      code: one word for programs.
      text: the sentence: what was expected, what was found.
      headers: beside those that every answer has.
    """

    def __init__(self, status: int, code: str, text: str, *headers: tuple[bytes, bytes], close: bool = False) -> None:
        """Say what is wrong.

        Args:
          status: of HTTP.
          code: one word for programs.
          text: the sentence.
          headers: beside those that every answer has.
          close: whether the connection ends with the answer.
        """
        super().__init__(text)
        self.status, self.code, self.text = status, code, text
        self.headers: Headers = (*headers, (b"connection", b"close")) if close else headers

    def answer(self, number: str) -> Answer:
        """Return what the client gets; ``number`` is what the log calls the request."""
        return json_answer({"error": self.text, "code": self.code, "id": number}, self.status, self.headers)


class BadRequest(ValueError):
    """What an actor raises about bytes that it cannot read: the client gets the sentence, and the game stays open."""


def shown(value: Any) -> str:
    """Return a value from a client as messages show it: at most 40 characters, escaped; ``none`` for None."""
    if value is None:
        return "none"
    text = value.decode("latin-1") if isinstance(value, bytes) else str(value)
    return ascii(text if len(text) <= 40 else text[:37] + "...")
