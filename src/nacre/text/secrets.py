"""Detection of secrets by variable names and by values in well-known token formats."""

import re
from typing import Final

_SECRET_NAME: Final = re.compile(
    rb"(?i)(?:ANTHROPIC_|OPENAI_|GEMINI_|AWS_SECRET|PHOENIX_).*"
    rb"|.*_TOKEN|.*_API_KEY|.*_SECRET.*|.*PASSWORD.*|.*_CREDENTIAL.*|.*PRIVATE_KEY.*"
    rb"|.*_(?:APIKEY|ACCESS_KEY|SECRETKEY|MASTER_KEY|PASSWD|PASSPHRASE|PASS|PAT|AUTHTOKEN|AUTH)"
    rb"|MYSQL_PWD"
    rb"|TOKEN|API_?KEY|SECRETS?|SECRET_.*|PASSWD|PASSPHRASE|CREDENTIALS?|.*AUTH_CONFIG"
)
# Every repetition in the pattern for secret values has an upper bound, because a value may be very
# long.
_SECRET_VALUE: Final = re.compile(
    rb"-----BEGIN (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY"
    rb"|(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]{0,30}://[^\s/:@?#]{0,200}:[^\s@?#]{1,200}@"
    rb"|(?<![\w/.-])(?:"
    rb"gh[pousr]_[A-Za-z0-9]{30,255}|github_pat_[A-Za-z0-9_]{20,255}|glpat-[A-Za-z0-9_-]{18,255}"
    rb"|sk-[A-Za-z0-9]{32,255}|sk-(?=[A-Za-z_-]{0,60}\d|ant-)[A-Za-z0-9_-]{20,255}"
    rb"|[sr]k_(?:live|test)_[A-Za-z0-9]{16,255}"
    rb"|xox[abeoprs]-[A-Za-z0-9-]{10,255}|(?:AKIA|ASIA)[0-9A-Z]{16}(?![0-9A-Z])"
    rb"|AIza[0-9A-Za-z_-]{35}|ya29\.[0-9A-Za-z_-]{20,255}|hf_[A-Za-z0-9]{30,255}"
    rb"|gsk_[A-Za-z0-9]{30,255}|xai-[A-Za-z0-9]{30,255}|AGE-SECRET-KEY-1[0-9A-Z]{20,255}"
    rb"|npm_[A-Za-z0-9]{36}|pypi-AgE[A-Za-z0-9_-]{20,255}|dop_v1_[0-9a-f]{40,255}"
    rb"|SG\.[A-Za-z0-9_-]{16,64}\.[A-Za-z0-9_-]{16,64}"
    rb"|eyJ[A-Za-z0-9_-]{8,1024}\.eyJ[A-Za-z0-9_-]{8,1024}\.[A-Za-z0-9_-]{8,255})"
)
# Number of bytes at the start of a value that are searched for secrets.
_LOOKED_AT: Final = 64 * 1024


def is_secret(name: bytes, value: bytes) -> bool:
    return _SECRET_NAME.fullmatch(name) is not None or has_secret(value)


def has_secret(text: bytes) -> bool:
    return _SECRET_VALUE.search(text, 0, _LOOKED_AT) is not None
