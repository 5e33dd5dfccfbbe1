"""JSON for the page: arrays as base64 of their bytes, which costs a browser and this process microseconds."""

import base64
import json
import math
from typing import Any

import numpy as np

KEPT = (np.float32, np.uint16, np.uint8)
"""Types of arrays that are sent as they are; all others become float64."""


def encode(value: Any) -> bytes:
    """Return a value as JSON.

    An array ``[N]`` becomes ``{"type": "f8", "data": base64}``, little-endian, or a type of ``KEPT``; numbers that are
    not finite, which JSON lacks, become null outside of arrays.
    """
    return json.dumps(_finite(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode(
        "utf-8",
        "replace",  # lone surrogates of a file name that is not UTF-8
    )


def _finite(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        array = value if value.dtype in KEPT else value.astype(np.float64)
        little = array.astype(array.dtype.newbyteorder("<"), copy=False)
        return {
            "type": f"{array.dtype.kind}{array.itemsize}",
            "data": base64.b64encode(little.tobytes()).decode("ascii"),
        }
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return _finite(value._asdict())
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value
