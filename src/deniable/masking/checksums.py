"""Numbers that prove themselves: check digits of cards, bank accounts and national identity numbers.

A pattern alone says "nine digits"; a check digit that fits in nearly every row says "Dutch citizen number". By chance a
number passes a mod-10 test one time in ten and a mod-97 test one time in ninety-seven, so a column in which nearly all
values pass is no accident. Every function takes the value as written and says whether it is valid.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

_NOT_WORD = re.compile(r"[\s.\-/]")


def compact(value: str) -> str:
    """The value without spaces, dots, dashes and slashes, in capitals."""
    return _NOT_WORD.sub("", value).upper()


def _digits(value: str, *lengths: int) -> list[int]:
    plain = compact(value)
    if not (plain.isascii() and plain.isdigit() and len(plain) in lengths):
        return []
    return [int(sign) for sign in plain]


def _weigh_digits(digits: Sequence[int], weights: Sequence[int]) -> int:
    return sum(d * w for d, w in zip(digits, weights, strict=False))


def _passes_luhn(digits: Sequence[int]) -> bool:
    doubled = [d * 2 - 9 if d > 4 else d * 2 for d in digits[-2::-2]]
    return bool(digits) and (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def is_card(value: str) -> bool:
    """Payment card: 13 to 19 digits, an issuer's first digit, Luhn (ISO/IEC 7812)."""
    digits = _digits(value, *range(13, 20))
    return bool(digits) and digits[0] in (2, 3, 4, 5, 6) and _passes_luhn(digits) and len(set(digits)) > 1


def is_iban(value: str) -> bool:
    """International bank account number: two letters, two digits, mod 97 equal to 1 (ISO 13616)."""
    plain = compact(value)
    if not re.fullmatch(r"[A-Z]{2}\d{2}[A-Z0-9]{11,30}", plain):
        return False
    turned = plain[4:] + plain[:4]
    return int("".join(str(int(sign, 36)) for sign in turned)) % 97 == 1


def is_us_ssn(value: str) -> bool:
    """US social security number: no check digit, but areas 000, 666, 9xx, group 00 and serial 0000 are never issued."""
    plain = compact(value)
    if not (len(plain) == 9 and plain.isascii() and plain.isdigit()):
        return False
    area, group, serial = plain[:3], plain[3:5], plain[5:]
    return area not in ("000", "666") and area[0] != "9" and group != "00" and serial != "0000"


def is_us_npi(value: str) -> bool:
    """US national provider identifier: ten digits beginning 1 or 2, Luhn with the prefix 80840."""
    digits = _digits(value, 10)
    return bool(digits) and digits[0] in (1, 2) and _passes_luhn([8, 0, 8, 4, 0, *digits])


def is_uk_nhs(value: str) -> bool:
    """NHS number: ten digits, mod 11."""
    digits = _digits(value, 10)
    return (
        bool(digits) and (11 - _weigh_digits(digits, range(10, 1, -1)) % 11) % 11 == digits[-1] and len(set(digits)) > 1
    )


def is_uk_nino(value: str) -> bool:
    """UK national insurance number: two letters of those in use, six digits, A to D."""
    pattern = r"(?!BG|GB|NK|KN|TN|NT|ZZ)[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z]\d{6}[A-D]"
    return re.fullmatch(pattern, compact(value)) is not None


def is_ca_sin(value: str) -> bool:
    """Canadian social insurance number: nine digits, Luhn, not beginning with 0 or 8."""
    digits = _digits(value, 9)
    return bool(digits) and digits[0] not in (0, 8) and _passes_luhn(digits)


def is_es_dni(value: str) -> bool:
    """Spanish DNI or NIE: eight digits (or X, Y, Z and seven) and the letter of the number mod 23."""
    plain = compact(value)
    if not re.fullmatch(r"[XYZ\d]\d{7}[A-Z]", plain):
        return False
    number = int({"X": "0", "Y": "1", "Z": "2"}.get(plain[0], plain[0]) + plain[1:8])
    return "TRWAGMYFPDXBNJZSQVHLCKE"[number % 23] == plain[8]


def is_nl_bsn(value: str) -> bool:
    """Dutch citizen service number: nine digits, the eleven-test with the last weight negative."""
    digits = _digits(value, 9)
    return bool(digits) and any(digits) and _weigh_digits(digits, (9, 8, 7, 6, 5, 4, 3, 2, -1)) % 11 == 0


def is_fr_nir(value: str) -> bool:
    """French social security number: 13 characters and a key of 97 less the number mod 97 (2A and 2B for Corsica)."""
    plain = compact(value)
    if not re.fullmatch(r"[12378]\d{4}(\d{2}|2A|2B)\d{6}\d{2}", plain):
        return False
    number = int(plain[:13].replace("2A", "19").replace("2B", "18"))
    return 97 - number % 97 == int(plain[13:])


def is_de_tax(value: str) -> bool:
    """German tax identification number: eleven digits, iterated mod 11 and 10 (ISO 7064)."""
    digits = _digits(value, 11)
    if not digits or digits[0] == 0:
        return False
    product = 10
    for digit in digits[:10]:
        total = (digit + product) % 10 or 10
        product = total * 2 % 11
    return (11 - product) % 10 == digits[10]


def is_it_fiscal(value: str) -> bool:
    """Italian codice fiscale: sixteen characters, the last a letter computed from odd and even places."""
    plain = compact(value)
    if not re.fullmatch(r"[A-Z]{6}\d{2}[A-EHLMPRST]\d{2}[A-Z]\d{3}[A-Z]", plain):
        return False
    odd = (1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 2, 4, 18, 20, 11, 3, 6, 8, 12, 14, 16, 10, 22, 25, 24, 23)
    place = [int(sign) if sign.isdigit() else ord(sign) - 65 for sign in plain[:15]]
    total = sum(odd[p] if i % 2 == 0 else p for i, p in enumerate(place))
    return chr(65 + total % 26) == plain[15]


def is_pl_pesel(value: str) -> bool:
    """Polish PESEL: eleven digits with a birth date inside, weights 1 3 7 9."""
    digits = _digits(value, 11)
    plausible = bool(digits) and 1 <= (digits[2] % 2) * 10 + digits[3] <= 12
    return plausible and (_weigh_digits(digits, (1, 3, 7, 9, 1, 3, 7, 9, 1, 3)) + digits[10]) % 10 == 0


def is_se_personal(value: str) -> bool:
    """Swedish personal number: YYMMDD and four digits, Luhn over the ten."""
    digits = _digits(value, 10, 12)[-10:]
    dated = bool(digits) and 1 <= digits[2] * 10 + digits[3] <= 12 and 1 <= digits[4] * 10 + digits[5] <= 31
    return dated and _passes_luhn(digits)


def is_br_cpf(value: str) -> bool:
    """Brazilian CPF: eleven digits, two check digits mod 11."""
    digits = _digits(value, 11)
    if not digits or len(set(digits)) == 1:
        return False
    checks = [(_weigh_digits(digits, range(n, 1, -1)) * 10 % 11) % 10 for n in (10, 11)]
    return checks == digits[9:]


def is_be_national(value: str) -> bool:
    """Belgian national number: eleven digits, the last two 97 less the rest mod 97 (a 2 before it from 2000 on)."""
    digits = "".join(map(str, _digits(value, 11)))
    plausible = bool(digits) and int(digits[2:4]) <= 12 and int(digits[4:6]) <= 31
    return plausible and int(digits[9:]) in (97 - int(lead + digits[:9]) % 97 for lead in ("", "2"))


def is_fi_personal(value: str) -> bool:
    """Finnish personal code: DDMMYY, a sign of the century, three digits and a character for the number mod 31."""
    found = re.fullmatch(r"([0-3]\d[01]\d{3})[-+A-FU-Y](\d{3})([0-9A-FHJ-NPR-Y])", value.strip().upper())
    return found is not None and "0123456789ABCDEFHJKLMNPRSTUVWXY"[int(found[1] + found[2]) % 31] == found[3]


def is_no_birth(value: str) -> bool:
    """Norwegian birth number: eleven digits, two check digits mod 11."""
    digits = _digits(value, 11)
    first = bool(digits) and _weigh_digits(digits, (3, 7, 6, 1, 8, 9, 4, 5, 2, 1)) % 11 == 0
    return first and any(digits) and _weigh_digits(digits, (5, 4, 3, 2, 7, 6, 5, 4, 3, 2, 1)) % 11 == 0


def is_ch_social(value: str) -> bool:
    """Swiss social insurance number: thirteen digits beginning 756, the check digit of EAN-13."""
    digits = _digits(value, 13)
    return digits[:3] == [7, 5, 6] and _weigh_digits(digits, (1, 3) * 6 + (1,)) % 10 == 0


def is_cn_resident(value: str) -> bool:
    """Chinese resident number: a birth date inside, seventeen digits, and a digit or X for their sum mod 11."""
    plain = compact(value)
    if not re.fullmatch(r"[1-9]\d{5}(?:19|20)\d\d(?:0[1-9]|1[0-2])[0-3]\d{4}[\dX]", plain):
        return False
    weights = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
    return "10X98765432"[_weigh_digits([int(sign) for sign in plain[:17]], weights) % 11] == plain[17]


def is_pt_tax(value: str) -> bool:
    """Portuguese tax number: nine digits, mod 11, a remainder below 2 written 0."""
    digits = _digits(value, 9)
    if not digits or digits[0] in (0, 4, 7):
        return False
    rest = _weigh_digits(digits, range(9, 1, -1)) % 11
    return digits[8] == (0 if rest < 2 else 11 - rest)


def is_in_aadhaar(value: str) -> bool:
    """Indian Aadhaar: twelve digits not beginning with 0 or 1, Verhoeff."""
    digits = _digits(value, 12)
    return bool(digits) and digits[0] > 1 and _passes_verhoeff(digits)


def _passes_verhoeff(digits: Sequence[int]) -> bool:
    """The check of the dihedral group D5: reflections and rotations of a pentagon, after a permutation by place."""
    permutation = (1, 5, 7, 6, 2, 8, 3, 0, 9, 4)
    check = 0
    for place, digit in enumerate(reversed(digits)):
        for _ in range(place % 8):
            digit = permutation[digit]
        check = _multiply_dihedral(check, digit)
    return check == 0


def _multiply_dihedral(a: int, b: int) -> int:
    if a < 5:
        return (a + b) % 5 if b < 5 else (a + b - 5) % 5 + 5
    return (a - 5 - b) % 5 + 5 if b < 5 else (a - b) % 5


def is_vin(value: str) -> bool:
    """Vehicle identification number: 17 characters without I, O, Q; the ninth checks (North America)."""
    plain = compact(value)
    if not re.fullmatch(r"[A-HJ-NPR-Z0-9]{17}", plain):
        return False
    letters = dict(zip("ABCDEFGHJKLMNPRSTUVWXYZ", map(int, "12345678123457923456789"), strict=True))
    weights = (8, 7, 6, 5, 4, 3, 2, 10, 0, 9, 8, 7, 6, 5, 4, 3, 2)
    rest = _weigh_digits([int(s) if s.isdigit() else letters[s] for s in plain], weights) % 11
    return plain[8] == ("X" if rest == 10 else str(rest))


@dataclass(frozen=True, slots=True)
class Checksum:
    """A named test, the probability that a random value of the right shape passes it, and its lengths when compact."""

    name: str
    test: Callable[[str], bool]
    chance: float
    lengths: tuple[int, ...]


NATIONAL = (
    Checksum("UK NHS number", is_uk_nhs, 0.09, (10,)),
    Checksum("UK national insurance number", is_uk_nino, 0.5, (9,)),
    Checksum("Canadian social insurance number", is_ca_sin, 0.1, (9,)),
    Checksum("Spanish DNI", is_es_dni, 0.05, (9,)),
    Checksum("Dutch citizen service number", is_nl_bsn, 0.09, (9,)),
    Checksum("French social security number", is_fr_nir, 0.02, (15,)),
    Checksum("German tax identification number", is_de_tax, 0.1, (11,)),
    Checksum("Italian codice fiscale", is_it_fiscal, 0.04, (16,)),
    Checksum("Polish PESEL", is_pl_pesel, 0.1, (11,)),
    Checksum("Swedish personal number", is_se_personal, 0.1, (10, 12)),
    Checksum("Brazilian CPF", is_br_cpf, 0.01, (11,)),
    Checksum("Indian Aadhaar", is_in_aadhaar, 0.1, (12,)),
    Checksum("Belgian national number", is_be_national, 0.02, (11,)),
    Checksum("Finnish personal code", is_fi_personal, 0.04, (10, 11)),
    Checksum("Norwegian birth number", is_no_birth, 0.01, (11,)),
    Checksum("Swiss social insurance number", is_ch_social, 0.1, (13,)),
    Checksum("Chinese resident number", is_cn_resident, 0.1, (18,)),
    Checksum("Portuguese tax number", is_pt_tax, 0.1, (9,)),
)
