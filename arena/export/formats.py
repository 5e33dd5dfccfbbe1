"""Conversion of a policy's module to files: ONNX, optionally with int8 weights, and TorchScript."""

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from arena.common.errors import ConfigError
from arena.common.registry import missing_package
from arena.export.metadata import KEY, ExportMetadata

OPSET = 20
TALKATIVE = ("torch.onnx", "torch.export", "onnxscript", "onnx_ir")
OLDEST_OPSET, NEWEST_OPSET = 18, 23  # range of torch's exporter


@contextlib.contextmanager
def export_packages() -> Iterator[None]:
    """Name the package to install if one for ONNX is missing.

    Raises:
      ConfigError: a package is missing.
    """
    try:
        yield
    except ImportError as error:
        raise missing_package(error, "arena export") from error


def to_onnx(inference: Any, opset: int) -> Any:
    """Return an ``onnx.ModelProto`` with the weight names of the policy, prefixed by ``network.``.

    It is not optimised: onnxruntime does that when it loads it, and weights can be found by their names.

    Args:
      inference: result of ``Policy.inference()``.
      opset: version of ONNX's operators.

    Raises:
      ConfigError: a package is missing, or a layer cannot be converted; the message has the exporter's reason.
    """
    with export_packages():
        import onnx
        import onnxscript  # noqa: F401  # required by torch's exporter, which reports it less plainly
        import torch
    arguments = _examples(inference)
    rows = torch.export.Dim("rows")
    with _quiet():
        try:
            program = torch.onnx.export(
                inference.module,
                arguments,
                dynamo=True,
                optimize=False,
                external_data=False,
                verbose=False,
                opset_version=opset,
                dynamic_shapes=(tuple({0: rows} for _ in arguments),),
                input_names=[tensor.name for tensor in inference.inputs],
                output_names=[tensor.name for tensor in inference.outputs],
            )
        except Exception as error:
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise ConfigError(f"this policy cannot be written as ONNX: {reason}") from error
    assert program is not None
    model = program.model_proto
    written = {tensor.name for tensor in model.graph.initializer}
    lost = [name for name in used_weights(inference) if name not in written]
    if lost:
        raise ConfigError(f"this policy cannot be written as ONNX: its weight {lost[0]} is not in the file")
    onnx.checker.check_model(model, full_check=True)
    return model


def used_weights(inference: Any) -> list[str]:
    """Return the names of the weights in a file that its outputs depend on."""
    import torch

    parameters = {name: weight for name, weight in inference.module.named_parameters() if weight.requires_grad}
    outputs = inference.module(*_examples(inference))
    floats = [output.sum() for output in outputs if output.requires_grad]
    slopes = torch.autograd.grad(sum(floats), list(parameters.values()), allow_unused=True)
    return [name for name, slope in zip(parameters, slopes, strict=True) if slope is not None]


def put_weights(model: Any, inference: Any) -> None:
    """Copy a policy's weights into an ``onnx.ModelProto`` of another version of the same policy."""
    from onnx import numpy_helper

    weights = inference.module.state_dict()
    for tensor in model.graph.initializer:
        if tensor.name in weights:
            tensor.CopyFrom(numpy_helper.from_array(weights[tensor.name].detach().numpy(), tensor.name))


def quantized(model: Any) -> Any:
    """Return the model with int8 weights; their factors are quantized dynamically."""
    import tempfile
    from pathlib import Path

    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with tempfile.TemporaryDirectory() as folder, _quiet():
        path = Path(folder) / "int8.onnx"
        quantize_dynamic(model, path, weight_type=QuantType.QInt8)
        return onnx.load(path)


def onnx_bytes(model: Any, about: ExportMetadata) -> bytes:
    """Return the file, with its metadata."""
    del model.metadata_props[:]
    entry = model.metadata_props.add()
    entry.key, entry.value = KEY, about.to_json()
    model.producer_name = "arena"
    return model.SerializeToString(deterministic=True)


def to_torchscript(inference: Any, about: ExportMetadata) -> bytes:
    """Return the module as a traced TorchScript file; its extra file ``arena`` holds the metadata.

    Raises:
      ConfigError: it cannot be traced.
    """
    import torch

    file = io.BytesIO()
    with _quiet(), torch.no_grad():
        try:
            traced = torch.jit.trace(inference.module, _examples(inference), check_trace=False)
        except Exception as error:
            raise ConfigError(f"this policy cannot be written as TorchScript: {str(error).splitlines()[0]}") from error
        torch.jit.save(traced, file, _extra_files={KEY: about.to_json()})
    return file.getvalue()


def _examples(inference: Any) -> tuple[Any, ...]:
    """Return two rows of every input: an exporter treats a batch of one as a constant."""
    import torch

    return tuple(torch.from_numpy(np.ones((2, *tensor.shape), tensor.dtype)) for tensor in inference.inputs)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress log messages of exporters about their internals, but no others."""
    root, before = logging.getLogger(), {name: logging.getLogger(name).level for name in TALKATIVE}
    root.addFilter(_is_error)  # filters records of the root logger itself, as of onnxruntime's quantization
    for name in TALKATIVE:
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        root.removeFilter(_is_error)
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)


def _is_error(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.ERROR
