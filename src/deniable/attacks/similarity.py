"""How alike two spellings are: compiled comparisons of names and dates, pair by pair, in three degrees.

0 missing on either side, 1 different, 2 close, 3 equal. Names are close by Jaro and Winkler's measure; dates when day
and month are swapped, when one of year, month and day differs, or when one character is mistyped.
"""

from __future__ import annotations

import numba as nb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

MISSING, DIFFERENT, CLOSE, EQUAL = 0, 1, 2, 3
NAMES_CLOSE = 0.88
_LONGEST = 48


def letters(texts: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Texts as one run of lower-case bytes and where each begins; longer ones are cut."""
    spelled = [(text or "").lower().encode()[:_LONGEST] for text in texts.to_pylist()]
    starts = np.cumsum([0, *map(len, spelled)]).astype(np.int64)
    return np.frombuffer(b"".join(spelled), np.uint8), starts


@nb.njit(cache=True, nogil=True)
def compare_names(signs, starts, left, right, degree):  # type: ignore[no-untyped-def]
    """Degrees of likeness of numbered texts by pairs; a number below 0 is missing."""
    seen = np.zeros(64, np.bool_)
    taken = np.zeros(64, np.bool_)
    for i in range(len(left)):
        a, b = left[i], right[i]
        if a < 0 or b < 0:
            degree[i] = 0
        elif a == b:
            degree[i] = 3
        else:
            alike = _jaro_winkler(signs[starts[a] : starts[a + 1]], signs[starts[b] : starts[b + 1]], seen, taken)
            degree[i] = 2 if alike >= NAMES_CLOSE else 1


@nb.njit(cache=True, nogil=True)
def _jaro_winkler(a, b, seen, taken):  # type: ignore[no-untyped-def]
    """Shared letters within reach, less half the swapped ones, and a bonus for a common beginning of up to four."""
    n, m = len(a), len(b)
    if n == 0 or m == 0:
        return 0.0
    reach = max(0, max(n, m) // 2 - 1)
    for i in range(n):
        seen[i] = False
    for j in range(m):
        taken[j] = False
    shared = 0
    for i in range(n):
        for j in range(max(0, i - reach), min(m, i + reach + 1)):
            if not taken[j] and a[i] == b[j]:
                seen[i] = taken[j] = True
                shared += 1
                break
    if shared == 0:
        return 0.0
    swapped, j = 0, 0
    for i in range(n):
        if seen[i]:
            while not taken[j]:
                j += 1
            if a[i] != b[j]:
                swapped += 1
            j += 1
    jaro = (shared / n + shared / m + (shared - swapped / 2) / shared) / 3
    prefix = 0
    while prefix < min(4, n, m) and a[prefix] == b[prefix]:
        prefix += 1
    return jaro + 0.1 * prefix * (1 - jaro)


@nb.njit(cache=True, nogil=True)
def compare_dates(signs, starts, left, right, degree):  # type: ignore[no-untyped-def]
    """Degrees of likeness of dates written YYYY-MM-DD; anything else is compared sign by sign."""
    for i in range(len(left)):
        a, b = left[i], right[i]
        if a < 0 or b < 0:
            degree[i] = 0
        elif a == b:
            degree[i] = 3
        else:
            one, other = signs[starts[a] : starts[a + 1]], signs[starts[b] : starts[b + 1]]
            degree[i] = 2 if _dates_close(one, other) else 1


@nb.njit(cache=True, nogil=True)
def _dates_close(a, b):  # type: ignore[no-untyped-def]
    if len(a) != len(b):
        return False
    wrong = 0
    for i in range(len(a)):
        wrong += a[i] != b[i]
    if wrong <= 1:
        return True
    if len(a) != 10:
        return False
    year, month, day = True, True, True
    for i in range(4):
        year = year and a[i] == b[i]
    for i in range(2):
        month = month and a[5 + i] == b[5 + i]
        day = day and a[8 + i] == b[8 + i]
    swapped = year and a[5] == b[8] and a[6] == b[9] and a[8] == b[5] and a[9] == b[6]
    return swapped or (year and (month or day)) or (month and day)


@nb.njit(cache=True, nogil=True)
def compare_values(left, right, degree):  # type: ignore[no-untyped-def]
    """Equal or not: for values without a spelling, such as sex."""
    for i in range(len(left)):
        degree[i] = 0 if left[i] < 0 or right[i] < 0 else (3 if left[i] == right[i] else 1)


@nb.njit(cache=True, nogil=True)
def compare_numbers(numbers, left, right, reach, degree):  # type: ignore[no-untyped-def]
    """Numbers, such as ages: close within `reach`."""
    for i in range(len(left)):
        if left[i] < 0 or right[i] < 0:
            degree[i] = 0
        elif left[i] == right[i]:
            degree[i] = 3
        else:
            degree[i] = 2 if abs(numbers[left[i]] - numbers[right[i]]) <= reach else 1
