"""What PyTorch's entry points call, so that ``backend="farandole"`` is known without an import of ours.

``import torch`` calls this function (group ``torch.backends``), at a moment when torch itself is only half there; and
newer versions call it when the name is first used (group ``torch.distributed.backends``). So nothing of torch is
imported at the top of this module, and nothing that goes wrong here may keep torch from being imported.
"""

from __future__ import annotations

import warnings
from typing import Any

NAME = "farandole"


def register() -> None:
    """Tell torch.distributed about the backend, once; the rest of this package is loaded when a group is made."""
    try:
        import torch.distributed as dist  # noqa: PLC0415

        if dist.is_available() and NAME.upper() not in dist.Backend._plugins:  # noqa: SLF001
            dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu"])
    except Exception as error:  # noqa: BLE001
        warnings.warn(f"the backend {NAME!r} is not available: {type(error).__name__}: {error}", stacklevel=2)


def _create(settings: Any, options: Any) -> Any:
    from farandole.torch.group import create  # noqa: PLC0415

    return create(settings, options)
