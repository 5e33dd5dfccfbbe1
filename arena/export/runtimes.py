"""Runtimes of exported files: onnxruntime for ONNX, torch for TorchScript."""

import io
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from arena.export.formats import NEWEST_OPSET, OLDEST_OPSET, export_packages
from arena.export.metadata import KEY, ExportError, ExportMetadata, about_from_json

Run = Callable[[Sequence[np.ndarray]], list[np.ndarray]]
"""Maps the inputs ``[N, ...]`` of a file, in order, to its outputs ``[N, ...]``."""


def open_onnx(content: bytes, place: object) -> tuple[Run, ExportMetadata]:
    """Return a function that runs an ONNX file, and the file's metadata.

    Raises:
      ConfigError: a package is missing.
      ExportError: it is damaged, not valid ONNX, has unsupported operators, or is no exported file.
    """
    with export_packages():
        import onnx
    try:
        model = onnx.load_from_string(content)
        onnx.checker.check_model(model, full_check=True)
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ExportError(f"{place}: expected a whole ONNX file, found one that is damaged or cut ({reason})") from None
    about = about_from_json({entry.key: entry.value for entry in model.metadata_props}.get(KEY), place)
    opset = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 0)
    if opset != about.opset or not OLDEST_OPSET <= opset <= NEWEST_OPSET:
        raise ExportError(f"{place}: expected operators of opset {about.opset}, as it was checked, found {opset}")
    return onnx_runner(content, place), about


def onnx_runner(content: bytes, place: object) -> Run:
    """Return a function that runs an ONNX file, on one thread.

    Raises:
      ConfigError: a package is missing.
      ExportError: onnxruntime rejects it.
    """
    with export_packages():
        import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ExportError(f"{place}: onnxruntime cannot run it ({reason})") from None
    names = [tensor.name for tensor in session.get_inputs()]

    def run(inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        return session.run(None, dict(zip(names, inputs, strict=True)))

    return run


def open_torchscript(content: bytes, place: object) -> tuple[Run, ExportMetadata]:
    """Return a function that runs a TorchScript file, and the file's metadata.

    Raises:
      ExportError: it is damaged, or no exported file.
    """
    import torch

    extra: dict[str, Any] = {KEY: ""}
    try:
        module = torch.jit.load(io.BytesIO(content), map_location="cpu", _extra_files=extra)
    except Exception:
        raise ExportError(f"{place}: expected a whole TorchScript file, found one that is damaged or cut") from None
    text = extra[KEY].decode() if isinstance(extra[KEY], bytes) else extra[KEY]

    def run(inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        with torch.inference_mode():
            return [tensor.numpy() for tensor in module(*map(torch.from_numpy, inputs))]

    return run, about_from_json(text, place)
