"""The C interface of libmillpond.so (abi/include/millpond) as ctypes sees it, minor 0.

Names are the headers' without their prefix. A test holds sizes, offsets and numbers against
abi/layout.golden.
"""

from .base import *  # noqa: F403
from .host import *  # noqa: F403
from .table import *  # noqa: F403

MINOR = 0
