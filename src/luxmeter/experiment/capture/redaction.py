"""What must not be kept: values whose names look like secrets, and passwords inside addresses."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from luxmeter.described import Described, DescribedMapping, type_of, with_type
from luxmeter.experiment.capture.secrets import TOKEN

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
_WEAK = re.compile(
    r"(^|[._-])(pass|pw|passcode|otp|pin_code|authorization"
    r"|(openai|anthropic|wandb|hf|huggingface|hub|google|gcp|azure|aws|s3|github|gitlab|comet|neptune|slack|stripe|twilio|sendgrid"
    r"|cohere|mistral|replicate|user|master|service|client|app|admin|root|db|server|host|private|deploy|webhook|storage)[_-]?(key|token))$",
    re.IGNORECASE,
)  # of a text alone: `two_pass: true` and `pass: 3` are none
_LOGIN = re.compile(r"(?<=://)[^/\s@:]*:[^/\s@]*(?=@)|(?<=http://)[^/\s@]+(?=@)|(?<=https://)[^/\s@]+(?=@)")
_ASKED = re.compile(
    r"(?<=[?&;])((?:access_?|api_?|auth_?|id_?|refresh_?|session_?)?(?:token|key)|sig|signature|password|passwd|pwd|secret|client_secret"
    r"|auth|x-(?:amz|goog|oss|cos)-(?:signature|security-token|credential)|awsaccesskeyid|q-signature)=[^&;#\s]+",
    re.IGNORECASE,
)  # what an address says of who asks: presigned ones, too
_HEADER = re.compile(r"\b((?:Proxy-)?Authorization:\s*(?:\w+\s+)?)[\w.~+/=-]{8,}", re.IGNORECASE)
_BEARER = re.compile(r"\b(Bearer\s+)[\w.~+/=-]{8,}|\b(Basic\s+)(?=[A-Za-z+/]*\d)[\w+/]{16,}=*", re.IGNORECASE)
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

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
    return _SECRET.search(name) is not None or _SECRET.search(_HUMP.sub("_", name)) is not None


def is_secret_text(name: str) -> bool:
    """As `is_secret`, of a value that is a text: also by words that name other things, too."""
    return is_secret(name) or _WEAK.search(_HUMP.sub("_", name)) is not None


def without_secrets(text: str) -> str:
    """A text without logins in addresses, keys asked with, and tokens of a known form."""
    text = _HEADER.sub(lambda found: f"{found[1]}{HIDDEN}", text)
    text = _ASKED.sub(lambda found: f"{found[1]}={HIDDEN}", _LOGIN.sub(HIDDEN, text))
    return TOKEN.sub(HIDDEN, _BEARER.sub(lambda found: f"{found[1] or found[2]}{HIDDEN}", text))


def allowed_variables(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment variables that are kept: those on the list, and none that looks like a secret."""
    given = os.environ if environ is None else environ
    return {
        name: without_secrets(value)
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
    if is_secret(name):
        return _all_hidden(value)
    if isinstance(value, Mapping):
        return hide_params(value)
    if isinstance(value, Described):
        return Described(without_secrets(str(value)), value.type, value.digest)
    if isinstance(value, str):
        return HIDDEN if value and is_secret_text(name) else without_secrets(value)
    if type(value) in (list, tuple):
        return type(value)(_hidden(name, item) for item in value)
    return value


def _all_hidden(value: Any) -> Any:
    """Everything below a secret's name; what is in a mapping keeps its names."""
    if isinstance(value, Mapping):
        shown = ((name, _all_hidden(held)) for name, held in value.items())
        return DescribedMapping(shown) if isinstance(value, DescribedMapping) else dict(shown)
    return value if value is None or isinstance(value, bool) or value == "" else HIDDEN


def _is_secret_option(name: str) -> bool:
    bare = name.lstrip("-")
    return is_secret_text(bare) or (name.startswith("--") and bare.lower() == "key")


def hide_argv(argv: Sequence[str]) -> list[str]:
    """A command line with the values of secret options hidden: `--api-key (hidden)`."""
    shown: list[str] = []
    hide_next = False
    for word in argv:
        name, equals, _ = word.partition("=")
        if hide_next and not word.startswith("--"):
            shown.append(HIDDEN)
            hide_next = False
        elif _is_secret_option(name) and (word.startswith("-") or equals):
            shown.append(f"{name}={HIDDEN}" if equals else word)
            hide_next = not equals
        else:
            shown.append(without_secrets(word))
            hide_next = False
    return shown
