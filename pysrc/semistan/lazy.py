"""Libraries that are imported when they are first used: PyTorch alone takes seconds."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch as torch
    from torch.nn import functional as functional
else:

    class _Lazy(ModuleType):
        """A module that is imported when one of its attributes is asked for."""

        def __getattr__(self, name: str) -> Any:
            value = getattr(import_module(self.__name__), name)
            setattr(self, name, value)  # found without a detour from now on
            return value

    torch, functional = _Lazy("torch"), _Lazy("torch.nn.functional")
