"""Defines the data types that state what is measured, how it is measured, and the result.

Apart from gpubench itself, the package imports only the standard library.
"""

from gpubench.model.config import Config as Config
from gpubench.model.config import Space as Space
from gpubench.model.config import edges as edges
from gpubench.model.launch import Gpu as Gpu
from gpubench.model.launch import Launch as Launch
from gpubench.model.measurement import CLOCKS_AGREE as CLOCKS_AGREE
from gpubench.model.measurement import Device as Device
from gpubench.model.measurement import Health as Health
from gpubench.model.measurement import Measurement as Measurement
from gpubench.model.measurement import PairedTimes as PairedTimes
from gpubench.model.measurement import Parts as Parts
from gpubench.model.measurement import Resources as Resources
from gpubench.model.measurement import Series as Series
from gpubench.model.operation import DEFAULT_FILE_OP as DEFAULT_FILE_OP
from gpubench.model.operation import DEFAULT_OP as DEFAULT_OP
from gpubench.model.operation import LARGEST as LARGEST
from gpubench.model.operation import OPERATIONS as OPERATIONS
from gpubench.model.operation import Array as Array
from gpubench.model.operation import Compared as Compared
from gpubench.model.operation import ListedSize as ListedSize
from gpubench.model.operation import Operation as Operation
from gpubench.model.operation import Shape as Shape
from gpubench.model.operation import Size as Size
from gpubench.model.operation import size_of as size_of
from gpubench.model.operation import size_text as size_text
from gpubench.model.point import CPU_TIMERS as CPU_TIMERS
from gpubench.model.point import Cache as Cache
from gpubench.model.point import Fill as Fill
from gpubench.model.point import Launches as Launches
from gpubench.model.point import Point as Point
from gpubench.model.point import PointKey as PointKey
from gpubench.model.point import Scope as Scope
from gpubench.model.point import State as State
from gpubench.model.point import Status as Status
from gpubench.model.point import Timer as Timer
from gpubench.model.precision import CORE_DTYPES as CORE_DTYPES
from gpubench.model.precision import DTYPE_ALIASES as DTYPE_ALIASES
from gpubench.model.precision import DTYPES as DTYPES
from gpubench.model.precision import ITEM_BYTES as ITEM_BYTES
from gpubench.model.precision import PRECISIONS as PRECISIONS
from gpubench.model.precision import Precision as Precision
from gpubench.model.precision import bytes_of_element as bytes_of_element
from gpubench.model.problem import LAYOUTS as LAYOUTS
from gpubench.model.problem import Problem as Problem
from gpubench.model.problem import layout_text as layout_text
from gpubench.model.problem import layouts_of as layouts_of
from gpubench.model.tensor_map import TensorMap as TensorMap
from gpubench.model.timing import Timing as Timing
from gpubench.model.variant import BrokenVariant as BrokenVariant
from gpubench.model.variant import CallVariant as CallVariant
from gpubench.model.variant import CudaVariant as CudaVariant
from gpubench.model.variant import HostVariant as HostVariant
from gpubench.model.variant import Variant as Variant
