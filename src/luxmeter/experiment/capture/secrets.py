"""Files and texts that hold secrets, told by name or by content: what is captured is passed on, and they must not be.

Patterns are of tokens with a known beginning and length, so that plain code and prose are not taken for one.
"""

from __future__ import annotations

import re
from pathlib import Path

_MOST_BYTES = 1 << 20  # of a file that are looked at: longer ones are no key files, and mostly no code
_NAMES = re.compile(
    r"\.env(\.(?!example$|sample$|template$|dist$)[\w.-]+)?|[\w.-]+\.env|id_(rsa|dsa|ecdsa|ed25519)(_sk)?"
    r"|.+\.(pem|key|p12|pfx|jks|keystore|kdbx|ppk|gpg)|[\w-]*secrets?\.(ya?ml|json|toml|ini|cfg|txt|env)"
    r"|credentials?(\.(ya?ml|json|toml|ini|cfg|txt|csv))?|(service|gcp)[_-]?account[\w-]*\.json|client_secret[\w.-]*\.json"
    r"|kaggle\.json|\.s3cfg|\.boto|application_default_credentials\.json|[._]netrc|\.pgpass|\.my\.cnf|\.npmrc|\.pypirc|\.htpasswd|\.git-credentials|\.dockercfg|kubeconfig|\.vault[_-]?(pass|token)\w*"
    r"|passwords?(\.\w+)?|\.?(api[_-]?|hf[_-]?|auth[_-]?|access[_-]?)?tokens?(\.(txt|json|ya?ml))?",
    re.IGNORECASE,
)
_FOLDERS = frozenset({".ssh", ".aws", ".gnupg", ".kube", ".azure", ".gcloud"})  # all of what lies in one
_TOKENS = (
    r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----(?:[^-]*-----END [A-Z0-9 ]*-----)?",
    r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",  # AWS
    r"\bgh[pousr]_[A-Za-z0-9]{36,}\b", r"\bgithub_pat_[A-Za-z0-9_]{22,}", r"\bglpat-[\w-]{20,}",
    r"\bhf_[A-Za-z0-9]{30,}\b", r"\bsk-(?:ant-|proj-)?[A-Za-z0-9_-]{32,}", r"\bwandb_v\d_[\w-]{30,}",
    r"\bAIza[\w-]{35}", r"\bya29\.[\w-]{20,}",  # Google
    r"\bxox[abeoprs]-[\w-]{10,}", r"\b[sr]k_live_[0-9A-Za-z]{20,}", r"\bSG\.[\w-]{22}\.[\w-]{43}",
    r"\bnpm_[A-Za-z0-9]{36}\b", r"\bpypi-AgEIcHlwaS5vcmc[\w-]{40,}", r"\bdop_v1_[a-f0-9]{64}\b",
    r"\bhooks\.slack\.com/(?:services|workflows|triggers)/[\w/-]{20,}", r"\bdiscord(?:app)?\.com/api/webhooks/\d+/[\w-]{20,}",
    r"\b(?:Account|SharedAccess)Key=[A-Za-z0-9+/]{20,}={0,2}",  # Azure
    r"\b(?i:aws_secret_access_key)[\"']?\s*[=:]\s*[\"']?[A-Za-z0-9/+]{40}",
    r"\beyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,}",  # JSON web tokens
)  # fmt: skip
TOKEN = re.compile("|".join(_TOKENS))
_TOKEN_BYTES = re.compile(TOKEN.pattern.encode())


def is_secret_file(path: Path) -> bool:
    """Whether a file is one of keys, tokens or passwords."""
    return (
        _NAMES.fullmatch(path.name) is not None
        or not _FOLDERS.isdisjoint(path.parts[-4:-1])
        or has_token(path)
    )


def has_token(path: Path) -> bool:
    """Whether a key or a token of a known form stands in a file."""
    try:
        with open(path, "rb") as file:
            return holds_token(file.read(_MOST_BYTES))
    except OSError:
        return False


def holds_token(content: bytes) -> bool:
    """Whether a key or a token of a known form stands in it."""
    return _TOKEN_BYTES.search(content) is not None
