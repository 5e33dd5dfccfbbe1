"""The Open Inference Protocol, version 2 (KServe, Triton): ``/v2``, with binary tensor data."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from arena.common.package import VERSION
from arena.common.trees import NamedLeaf, map_tree, named_leaves, nest
from arena.gateway.batcher import ForwardResult
from arena.gateway.http.request import Request
from arena.gateway.http.responses import Refusal, Response, json_response, shown
from arena.gateway.models import Model
from arena.gateway.players import Player
from arena.gateway.values import SpaceError, as_array, leaf_reader, mask_reader

MAX_ROWS = 1024
BINARY = b"application/octet-stream"
HEADER_LENGTH = b"inference-header-content-length"

_DATATYPES = {"bool": "BOOL", **{f"float{bits}": f"FP{bits}" for bits in (16, 32, 64)}}
_DATATYPES |= {f"{sign}int{bits}": f"{sign.upper()}INT{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}


def _datatype(leaf: NamedLeaf) -> str:
    """Return the protocol's name of a dtype."""
    return _DATATYPES[leaf.dtype.name]


def _described(leaf: NamedLeaf) -> dict[str, Any]:
    """Return the metadata of a tensor."""
    return {"name": leaf.name, "datatype": _datatype(leaf), "shape": [-1, *leaf.shape]}


class Inference:
    """Handlers of requests about models and for inference."""

    def __init__(self, players: Mapping[str, Player], max_body: int) -> None:
        """Store the arguments.

        Args:
          players: players by name.
          max_body: largest size of a request in bytes.
        """
        self._players, self._max_body = players, max_body

    def server(self) -> Response:
        """Return the metadata of the server."""
        return json_response({"name": "arena", "version": VERSION, "extensions": ["binary_tensor_data"]})

    def model(self, name: str, version: str | None) -> Model:
        """Return a model.

        Raises:
          Refusal: there is no such model, or it has no such version.
        """
        if name not in self._players:
            text = f"there is no model {shown(name)}; models: {', '.join(self._players)}"
            raise Refusal(404, "unknown_model", text)
        return self._players[name].at(version)

    def describe(self, model: Model) -> Response:
        """Return the metadata of a model: its inputs and outputs."""
        inputs = [_described(leaf) for leaf in named_leaves(model.observation, "observation")]
        if model.flags:
            inputs.append({"name": "action_mask", "datatype": "INT8", "shape": [-1, model.flags]})
        return json_response(
            {
                "name": model.name,
                "versions": self._players[model.name].versions,
                "platform": model.platform,
                "inputs": inputs,
                "outputs": [_described(leaf) for leaf in named_leaves(model.action, "action")],
            }
        )

    def ready(self, model: Model) -> Response:
        """Return that a model is ready."""
        return json_response({"name": model.name, "ready": True})

    async def infer(self, model: Model, request: Request) -> Response:
        """Return the actions for the observations of a request.

        Raises:
          Refusal: the request does not fit the model; the sentence states what was expected and found.
        """
        if model.memory:
            raise self._players[model.name].needs_session()
        header = request.header(HEADER_LENGTH)
        body = await request.body(self._max_body)
        try:
            content, binary = _split(body, header)
            query = _Query(content, binary, model)
        except SpaceError as error:
            raise Refusal(400, "bad_input", str(error)) from None
        result = await model.request(
            query.observations, query.masks, rows=query.rows, deterministic=query.deterministic
        )
        return query.respond(model, result)


class _Query:
    """A parsed inference request.

    Attributes:
      rows: number of observations.
      observations: ``[rows, ...]``, nested as the space.
      masks: ``[rows, flags]`` or None.
      deterministic: as requested, or None.
    """

    def __init__(self, request: dict[str, Any], binary: memoryview, model: Model) -> None:
        _only(request, {"id", "parameters", "inputs", "outputs"}, "the request")
        self._id = request.get("id", "")
        if not isinstance(self._id, str):
            raise SpaceError("id: expected a text")
        parameters = _object(request.get("parameters", {}), "parameters")
        _only(parameters, {"deterministic", "binary_data_output"}, "parameters")
        self.deterministic = _flag(parameters.get("deterministic"), "deterministic")
        if model.greedy and self.deterministic is False:
            raise SpaceError(
                "parameters.deterministic: expected true: this model computes the most likely actions only"
            )
        self._all_binary = _flag(parameters.get("binary_data_output"), "binary_data_output") or False
        self._outputs = _outputs_of(request.get("outputs"), named_leaves(model.action, "action"), self._all_binary)
        inputs = _inputs_of(request.get("inputs"), binary)
        leaves = named_leaves(model.observation, "observation")
        names = [tensor.name for tensor in leaves]
        known = [*names, "action_mask"] if model.flags else names
        unknown = [name for name in inputs if name not in known]
        missing = [name for name in names if name not in inputs]
        if unknown or missing:
            raise SpaceError(f"inputs: expected {', '.join(names)}, found {', '.join(map(shown, inputs)) or 'none'}")
        self.rows = inputs[names[0]].rows()
        values = [inputs[t.name].read(_datatype(t), t.shape, t.dtype, t.space, self.rows) for t in leaves]
        self.observations = nest(model.observation, values)
        self.masks = None
        if "action_mask" in inputs:
            flags = inputs["action_mask"].values("INT8", (model.flags,), np.dtype(np.int8), self.rows)
            self.masks = mask_reader(model.action, "action_mask", self.rows)(flags)

    def respond(self, model: Model, result: ForwardResult) -> Response:
        """Return the actions ``[rows, ...]`` in the requested form."""
        leaves: list[np.ndarray] = []
        map_tree(leaves.append, result.rows)
        by_name = {t.name: (t, leaf) for t, leaf in zip(named_leaves(model.action, "action"), leaves, strict=True)}
        outputs, tail = [], []
        for name, binary in self._outputs.items():
            tensor, leaf = by_name[name]
            output: dict[str, Any] = {"name": name, "datatype": _datatype(tensor), "shape": list(leaf.shape)}
            if binary:
                tail.append(np.ascontiguousarray(leaf).astype(leaf.dtype.newbyteorder("<"), copy=False).tobytes())
                output["parameters"] = {"binary_data_size": len(tail[-1])}
            else:
                output["data"] = leaf.reshape(-1).tolist()
            outputs.append(output)
        content = {"model_name": model.name, "model_version": result.by, "outputs": outputs}
        if self._id:
            content["id"] = self._id
        if not tail:
            return json_response(content)
        head = json.dumps(content).encode()
        return Response(head + b"".join(tail), BINARY, ((HEADER_LENGTH, str(len(head)).encode()),))


class _Input:
    """One input tensor of a request."""

    def __init__(self, content: dict[str, Any], raw: "memoryview | None") -> None:
        self._name = content["name"]
        self._datatype, self._data, self._raw = content.get("datatype"), content.get("data"), raw
        shape = content.get("shape")
        whole = isinstance(shape, list) and all(type(size) is int and size >= 0 for size in shape)
        if not whole or not shape:
            raise SpaceError(f"{self._name}: expected a shape, a list of whole numbers, found {_shown(shape)}")
        self._shape: list[int] = shape

    def rows(self) -> int:
        """Return its leading axis."""
        rows = self._shape[0]
        if not 1 <= rows <= MAX_ROWS:
            raise SpaceError(f"{self._name}: expected 1 to {MAX_ROWS} rows, found {rows}")
        return rows

    def read(
        self, datatype: str, shape: tuple[int, ...], dtype: np.dtype, space: spaces.Space, rows: int
    ) -> np.ndarray:
        """Return the checked values ``[rows, ...]`` of a leaf space."""
        return leaf_reader(space, self._name, rows)(self.values(datatype, shape, dtype, rows))

    def values(self, datatype: str, shape: tuple[int, ...], dtype: np.dtype, rows: int) -> np.ndarray:
        """Return the values ``[rows, ...]``, not yet checked against a space."""
        if self._datatype != datatype:
            raise SpaceError(f"{self._name}: expected the datatype {datatype}, found {_shown(self._datatype)}")
        if self._shape != [rows, *shape]:
            raise SpaceError(f"{self._name}: expected shape {[rows, *shape]}, found {_shown(self._shape)}")
        if self._raw is not None:
            expected = rows * int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
            if len(self._raw) != expected:
                raise SpaceError(f"{self._name}: expected {expected} bytes of data, found {len(self._raw)}")
            return np.frombuffer(self._raw, dtype.newbyteorder("<")).astype(dtype).reshape(rows, *shape)
        if not isinstance(self._data, list):
            raise SpaceError(f"{self._name}: expected data, a list, found {_shown(self._data)}")
        array = as_array(self._data, self._name)
        if array.size != rows * int(np.prod(shape, dtype=np.int64)):
            raise SpaceError(f"{self._name}: expected {[rows, *shape]} numbers, found {array.size}")
        if array.ndim > 1 and array.shape != (rows, *shape):
            raise SpaceError(f"{self._name}: expected data of shape {[rows, *shape]}, found {list(array.shape)}")
        return array.reshape(rows, *shape)


def _split(body: bytes, header: bytes | None) -> tuple[dict[str, Any], memoryview]:
    """Return the JSON of a request, and the binary data behind it."""
    length = len(body)
    if header is not None:
        if not (header.isdigit() and len(header) <= 12 and int(header) <= len(body)):
            text = f"expected at most the {len(body)} bytes of the body, found {shown(header)}"
            raise SpaceError(f"inference-header-content-length: {text}")
        length = int(header)
    try:
        request = json.loads(body[:length], parse_constant=_raise_constant)
    except SpaceError:
        raise
    except (ValueError, RecursionError):
        raise SpaceError("expected one JSON object, found something else") from None
    return _object(request, "the request"), memoryview(body)[length:]


def _raise_constant(name: str) -> Any:
    raise SpaceError(f"expected finite numbers, found {name}")


def _inputs_of(content: Any, binary: memoryview) -> dict[str, _Input]:
    result: dict[str, _Input] = {}
    for item in _list(content, "inputs"):
        entry = _object(item, "inputs")
        _only(entry, {"name", "shape", "datatype", "data", "parameters"}, "inputs")
        name = entry.get("name")
        if not isinstance(name, str) or name in result:
            raise SpaceError(f"inputs: expected a name of its own for each, found {_shown(name)}")
        parameters = _object(entry.get("parameters", {}), name)
        _only(parameters, {"binary_data_size"}, f"parameters of {shown(name)}")
        raw = None
        if "binary_data_size" in parameters:
            size = parameters["binary_data_size"]
            if type(size) is not int or not 0 <= size <= len(binary):
                raise SpaceError(f"{name}: expected at most {len(binary)} bytes of binary data, found {_shown(size)}")
            raw, binary = binary[:size], binary[size:]
        result[name] = _Input(entry, raw)
    if len(binary):
        raise SpaceError(f"expected no bytes behind the inputs' binary data, found {len(binary)}")
    return result


def _outputs_of(content: Any, tensors: list[NamedLeaf], binary: bool) -> dict[str, bool]:
    """Return name -> whether it is binary, for the requested outputs; all outputs by default."""
    names = [tensor.name for tensor in tensors]
    if content is None:
        return dict.fromkeys(names, binary)
    result = {}
    for item in _list(content, "outputs"):
        entry = _object(item, "outputs")
        _only(entry, {"name", "parameters"}, "outputs")
        name = entry.get("name")
        if name not in names:
            raise SpaceError(f"outputs: expected {', '.join(names)}, found {_shown(name)}")
        parameters = _object(entry.get("parameters", {}), name)
        _only(parameters, {"binary_data"}, f"parameters of {name}")
        as_binary = _flag(parameters.get("binary_data"), "binary_data")
        result[name] = binary if as_binary is None else as_binary
    return result


def _object(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise SpaceError(f"{name}: expected an object, found {_shown(value)}")
    return value


def _list(value: Any, name: str) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise SpaceError(f"{name}: expected a list, found {_shown(value)}")
    return value


def _flag(value: Any, name: str) -> bool | None:
    if value is not None and not isinstance(value, bool):
        raise SpaceError(f"{name}: expected true or false, found {_shown(value)}")
    return value


def _only(content: Mapping[str, Any], keys: set[str], name: str) -> None:
    unknown = [key for key in content if key not in keys]
    if unknown:
        raise SpaceError(f"{name}: expected {', '.join(sorted(keys))}, found {shown(unknown[0])}")


def _shown(value: Any) -> str:
    return shown(json.dumps(value)) if value is not None else "none"
