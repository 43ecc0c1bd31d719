"""What must not be kept: values whose names look like secrets, and passwords inside addresses."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from luxmeter.described import Described, DescribedMapping, type_of, with_type

HIDDEN = "(hidden)"

# Whole words of a name: `api_key` and `HF_TOKEN` are secrets; `tokenizer`, `max_tokens` and `monkey` are not, nor is
# `pad_token`, which every language model has.
_SECRET = re.compile(
    r"(^|[._-])(secrets?|passwd|password|passphrase|pwd|credentials?|bearer|cookies?|private[_-]?key"
    r"|(api|access|auth|account|signing|encryption|ssh|license|secret)[_-]?(key|token)s?"
    r"|(hf|hub|github|gitlab|gh|wandb|neptune|comet|aws|session|refresh|bot|oauth|jwt)[_-]token|apikey|authtoken|(?<![_-])token)"
    r"($|[._-](id|file|path|value)?$)",
    re.IGNORECASE,
)
_DOUBTFUL = re.compile(r"TOKEN(?!IZERS)|KEY|SECRET|PASS|CRED|AUTH")  # in a variable's name
_LOGIN = re.compile(r"(?<=://)[^/\s@]*:[^/\s@]*(?=@)")

# Variables that change what a run computes or how fast, or say where it ran.
_ALLOWED = re.compile(
    r"CUDA_\w+|HIP_VISIBLE_DEVICES|ROCR_VISIBLE_DEVICES|ASCEND_\w+|NVIDIA_\w+|OMP_\w+|MKL_\w+|OPENBLAS_\w+|KMP_\w+|GOMP_\w+"
    r"|TORCH_\w+|TORCHINDUCTOR_\w+|TORCHDYNAMO_\w+|PYTORCH_\w+|NCCL_\w+|GLOO_\w+|CUBLAS_\w+|CUDNN_\w+|XLA_\w+|TF_\w+"
    r"|PYTHON(HASHSEED|PATH|OPTIMIZE|WARNINGS|MALLOC|DEVMODE|UTF8|IOENCODING|UNBUFFERED)"
    r"|VIRTUAL_ENV|CONDA_DEFAULT_ENV|CONDA_PREFIX|LANG|LC_\w+|TZ|HOSTNAME|LD_PRELOAD|LD_LIBRARY_PATH"
    r"|RANK|LOCAL_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|MASTER_ADDR|MASTER_PORT|GROUP_RANK|NODE_RANK|OMPI_COMM_WORLD_\w+"
    r"|SLURM_(JOB_ID|JOB_NAME|JOB_NODELIST|JOB_PARTITION|PROCID|NTASKS|LOCALID|NNODES|CPUS_PER_TASK|GPUS\w*|ARRAY_\w+)"
    r"|HF_HOME|HF_HUB_OFFLINE|HF_DATASETS_OFFLINE|TRANSFORMERS_OFFLINE|TOKENIZERS_PARALLELISM|WANDB_MODE"
    r"|LUXMETER_(HOME|CORE|STORE_LOST_AFTER_S)"
)


def is_secret(name: str) -> bool:
    """Whether a value of this name should not be written down."""
    return _SECRET.search(name) is not None


def without_login(text: str) -> str:
    """An address without the user and password in it."""
    return _LOGIN.sub(HIDDEN, text)


def allowed_variables(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment variables that are kept: those on the list, and none that looks like a secret."""
    given = os.environ if environ is None else environ
    return {
        name: without_login(value)
        for name, value in sorted(given.items())
        if _ALLOWED.fullmatch(name) and not is_secret(name) and not _DOUBTFUL.search(name)
    }


def hide_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters with the values of secrets hidden, at any depth."""
    shown = ((name, _hidden(str(name), value)) for name, value in params.items())
    return (
        with_type(DescribedMapping(shown), type_of(params))
        if isinstance(params, DescribedMapping)
        else dict(shown)
    )


def _hidden(name: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return hide_params(value)
    if is_secret(name) and value is not None and value is not False and value != "":
        return HIDDEN
    if isinstance(value, Described):
        return Described(without_login(str(value)), value.type, value.digest)
    return without_login(value) if isinstance(value, str) else value


def hide_argv(argv: Sequence[str]) -> list[str]:
    """A command line with the values of secret options hidden: `--api-key (hidden)`."""
    shown: list[str] = []
    hide_next = False
    for word in argv:
        name, equals, _ = word.partition("=")
        if hide_next and not word.startswith("--"):
            shown.append(HIDDEN)
            hide_next = False
        elif is_secret(name.lstrip("-")) and (word.startswith("-") or equals):
            shown.append(f"{name}={HIDDEN}" if equals else word)
            hide_next = not equals
        else:
            shown.append(without_login(word))
            hide_next = False
    return shown
