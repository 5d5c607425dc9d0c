"""Loads the extension module beside the libtorch that it was built for."""

from __future__ import annotations

from types import ModuleType

from . import _build


def load() -> ModuleType:
    """The extension module; ImportError with what to do if torch is missing or another version.

    The extension contains C++ types of libtorch, whose layout changes with every minor version. It
    uses the library that `import torch` has loaded, and so must have been compiled for it.
    """
    try:
        import torch
    except ImportError as error:
        raise ImportError(f"muster's training loop needs torch {_build.TORCH}: "
                          f"pip install torch=={_build.TORCH}") from error
    found = torch.__version__.split("+")[0]
    if found != _build.TORCH:
        raise ImportError(f"muster-train {_build.VERSION} was built for torch {_build.TORCH}, and this "
                          f"environment has {found}: pip install torch=={_build.TORCH}, or install a "
                          f"muster-train that was built for {found}")
    from . import _core
    return _core
