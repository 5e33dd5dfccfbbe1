"""Pydantic's validation errors reworded: what was expected, what was found, the nearest valid name."""

import json
import math
from collections.abc import Iterable
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    ValidationError,
    model_serializer,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from arena.common.text import did_you_mean, nearest

Place = tuple[str | int, ...]  # keys and list indices from the top of the file to a value


def describe_value(value: Any) -> str:
    """Describe a value for an error message."""
    if value is None:
        return "nothing (null)"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f"{value if len(value) <= 60 else value[:57] + '...'!r} (text)"
    if isinstance(value, dict):
        return (
            f"a mapping with {', '.join(map(repr, list(value)[:3]))}{', ...' if len(value) > 3 else ''}"
            if value
            else "an empty mapping"
        )
    if isinstance(value, (list, tuple)):
        return f"a list of {len(value)}" if value else "an empty list"
    return repr(value)


def is_integral(value: Any) -> bool:
    """Return whether ``value`` is a float with an integral value, such as ``1e6``."""
    return isinstance(value, float) and math.isfinite(value) and value.is_integer()


# Numbers as people write them: 1e6 is an integer, "12" and true are not numbers.
_WHOLE = BeforeValidator(lambda value: int(value) if is_integral(value) else value)
Count = Annotated[int, Strict(), Field(ge=1), _WHOLE]
Index = Annotated[int, Strict(), Field(ge=0), _WHOLE]
Number = Annotated[float, Strict()]


def _one_or_auto(value: Any) -> Any:
    number = int(value) if is_integral(value) else value
    if number != "auto" and (type(number) is not int or number < 1):
        raise ValueError(f"expected a whole number of at least 1, or auto, found {describe_value(value)}")
    return number


CountOrAuto = Annotated[Annotated[int, Field(ge=1)] | Literal["auto"], BeforeValidator(_one_or_auto)]


def _one_or_word(value: Any) -> Any:
    number = int(value) if is_integral(value) else value
    if number not in ("auto", "cores") and (type(number) is not int or number < 1):
        raise ValueError(f"expected a whole number of at least 1, auto or cores, found {describe_value(value)}")
    return number


Replicas = Annotated[Annotated[int, Field(ge=1)] | Literal["auto", "cores"], BeforeValidator(_one_or_word)]

_OURS = "arena"  # type of the errors that are reworded already


class Problem(NamedTuple):
    """One validation error.

    Attributes:
      place: path of the key, from the top of the validated mapping.
      text: what is wrong, ready to be printed behind the key.
      value: the value found there.
    """

    place: Place
    text: str
    value: Any = None


class Model(BaseModel):
    """Base of all models of the file: frozen, unknown keys are errors, errors are reworded."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="wrap")
    @classmethod
    def _in_our_words(cls, data: Any, handler: Any) -> Any:
        try:
            return handler(data)
        except ValidationError as error:
            raise refusal(problems(error, cls)) from None

    @model_serializer(mode="wrap")
    def _without_nulls(self, handler: Any) -> dict[str, Any]:
        """Drop null fields: null always means the default."""
        return {key: value for key, value in handler(self).items() if value is not None}


def refusal(found_problems: Iterable[Problem]) -> ValidationError:
    """Return the problems as an error to which pydantic prepends the place of the model."""
    lines = [
        InitErrorDetails(type=PydanticCustomError(_OURS, "{text}", {"text": text}), loc=place, input=value)
        for place, text, value in found_problems
    ]
    return ValidationError.from_exception_data("config", lines)


def problems(error: ValidationError, model: type[BaseModel]) -> list[Problem]:
    """Return the reworded problems of an ``error`` that ``model`` has raised."""
    lines = error.errors(include_url=False)
    valid = [field.alias or name for name, field in model.model_fields.items()]
    misspelt = {
        close for line in lines if line["type"] == "extra_forbidden" for close in nearest(line["loc"][-1], valid)
    }
    return [
        Problem(tuple(part for part in line["loc"] if part != "[key]"), _text(line, model, valid), line["input"])
        for line in lines
        if not (line["type"] == "missing" and line["loc"][-1] in misspelt)
    ]


def _text(line: Any, model: type[BaseModel], valid: list[str]) -> str:
    kind, context, place = line["type"], line.get("ctx", {}), line["loc"]
    if kind == _OURS:
        return context["text"]
    if kind == "extra_forbidden":
        return f"unknown key; {did_you_mean(place[-1], valid)}"
    if kind == "missing":
        field = model.model_fields.get(place[0]) if len(place) == 1 else None
        return f"required key is missing{f': {field.description}' if field and field.description else ''}"
    if kind == "value_error":
        return str(context["error"])
    if kind == "literal_error":
        return _literal(line["input"], context["expected"])
    if kind in _BOUNDS:
        name, phrase = _BOUNDS[kind]
        return f"expected a number {phrase} {context[name]}, found {describe_value(line['input'])}"
    if kind in ("too_short", "too_long"):
        bound = f"at least {context['min_length']}" if kind == "too_short" else f"at most {context['max_length']}"
        return f"expected a list of {bound}, found {describe_value(line['input'])}"
    expected = _EXPECTED.get(kind)
    if expected:
        return f"expected {expected}, found {describe_value(line['input'])}"
    return f"{line['msg'][0].lower()}{line['msg'][1:]}, found {describe_value(line['input'])}"


_BOUNDS = {
    "greater_than": ("gt", "greater than"),
    "greater_than_equal": ("ge", "of at least"),
    "less_than": ("lt", "below"),
    "less_than_equal": ("le", "of at most"),
}
_EXPECTED = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "list_type": "a list",
    "tuple_type": "a list",
    "invalid_key": "text as a key",
    "none_required": "nothing (null)",
}


def _literal(value: Any, expected: str) -> str:
    valid = expected.replace(" or ", ", ").replace("'", "").split(", ")
    near = did_you_mean(value, valid) if isinstance(value, str) else ""
    return f"expected {expected}, found {describe_value(value)}{f'; {near}' if near.startswith('did') else ''}"


def check_settings(model: type[BaseModel], settings: dict[str, Any]) -> dict[str, Any]:
    """Return a built-in policy's settings with defaults filled in.

    The model itself may be lenient (pydantic's default); a file is not: text is no number and a number no boolean.

    Raises:
      ValidationError: a setting is wrong.
    """
    wrong: list[Problem] = []
    checked = None
    try:
        checked = model.model_validate(settings)
    except ValidationError as error:
        wrong = problems(error, model)
    # Only pydantic's JSON mode is strict about scalars and still accepts a list for a tuple.
    try:
        model.model_validate_json(json.dumps(settings, default=str), strict=True)
    except ValidationError as error:
        reported = {problem.place for problem in wrong}
        scalars = {"int_type", "float_type", "bool_type"}
        kinds = [line["type"] for line in error.errors(include_url=False)]
        wrong += [
            problem
            for problem, kind in zip(problems(error, model), kinds, strict=True)
            if kind in scalars and problem.place not in reported and not is_integral(problem.value)
        ]
    if checked is None or wrong:
        raise refusal(wrong)
    return checked.model_dump()
