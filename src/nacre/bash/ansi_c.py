"""Decoder for the backslash escapes in bash's `$'...'`, also used to predict the output of `echo
-e` and `printf`."""

import re
from typing import Final

_ANSI: Final = re.compile(
    rb"\\(?:([abeEfnrtv\\'\"?])|([0-7]{1,3})|x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})"
    rb"|U([0-9a-fA-F]{1,8})|c(.))",
    re.DOTALL,
)
_ANSI_LETTERS: Final = dict(zip(b"abeEfnrtv\\'\"?", b"\a\b\x1b\x1b\f\n\r\t\v\\'\"?", strict=True))


def decode_ansi_c(text: bytes, *, nul: bool = False) -> bytes:
    """Return the text that bash makes of the quoted string `$'text'`. The returned text ends at its
    first NUL byte, as in bash, unless `nul` is True. `nul` is True for the arguments of `printf`,
    which can print NUL bytes."""

    def one(found: re.Match[bytes]) -> bytes:
        letter, octal, hexa, short, long, control = found.groups()
        if letter:
            return bytes([_ANSI_LETTERS[letter[0]]])
        if octal:
            return bytes([int(octal, 8) & 0xFF])
        if hexa:
            return bytes([int(hexa, 16)])
        if control:
            return bytes([control[0] & 0x1F])
        number = int(short or long, 16)
        return chr(number).encode("utf-8", "surrogatepass") if number < 0x110000 else found[0]

    decoded = _ANSI.sub(one, text)
    return decoded if nul else decoded.split(b"\0")[0]
