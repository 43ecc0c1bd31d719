"""Where torchvision is not installed: of its transforms, the one that a first training needs."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


class ToTensor:
    """An image as a float tensor, channels first; bytes are brought to 0..1. A tensor stays as it is."""

    def __call__(self, image: Any) -> torch.Tensor:
        if isinstance(image, torch.Tensor):
            return image
        array = np.asarray(image)
        array = array[:, :, None] if array.ndim == 2 else array
        tensor = torch.from_numpy(np.ascontiguousarray(array.transpose(2, 0, 1)))
        return tensor.float() / 255 if array.dtype == np.uint8 else tensor
