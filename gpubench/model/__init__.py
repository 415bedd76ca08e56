"""The nouns: what is measured, how, and the outcome. Standard library only."""

from __future__ import annotations

from gpubench.model.config import Config, Space, edges
from gpubench.model.measurement import (
    CLOCKS_AGREE,
    Device,
    Health,
    Host,
    Measurement,
    PairedTimes,
    Parts,
    Resources,
    Series,
)
from gpubench.model.operation import LARGEST, OPERATIONS, Operation, Shape
from gpubench.model.point import (
    Cache,
    Fill,
    Launches,
    Point,
    PointKey,
    Scope,
    State,
    Status,
    Timer,
)
from gpubench.model.precision import (
    CORE_DTYPES,
    DTYPE_ALIASES,
    DTYPES,
    ITEM_BYTES,
    PRECISIONS,
    Precision,
)
from gpubench.model.problem import LAYOUTS, Problem, layout_text, layouts_of
from gpubench.model.timing import Timing
from gpubench.model.variant import (
    BrokenVariant,
    CallVariant,
    CudaVariant,
    Gpu,
    HostVariant,
    Launch,
    TensorMap,
    Variant,
)

__all__ = [
    "CLOCKS_AGREE",
    "CORE_DTYPES",
    "DTYPES",
    "DTYPE_ALIASES",
    "ITEM_BYTES",
    "LARGEST",
    "LAYOUTS",
    "OPERATIONS",
    "PRECISIONS",
    "BrokenVariant",
    "Cache",
    "CallVariant",
    "Config",
    "CudaVariant",
    "Device",
    "Fill",
    "Gpu",
    "Health",
    "Host",
    "HostVariant",
    "Launch",
    "Launches",
    "Measurement",
    "Operation",
    "PairedTimes",
    "Parts",
    "Point",
    "PointKey",
    "Precision",
    "Problem",
    "Resources",
    "Scope",
    "Series",
    "Shape",
    "Space",
    "State",
    "Status",
    "TensorMap",
    "Timer",
    "Timing",
    "Variant",
    "edges",
    "layout_text",
    "layouts_of",
]
