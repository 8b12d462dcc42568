"""Regular expressions that take too long: found from their text, before they see a value.

Python's `re` tries every way in which an expression can match before it gives up. The number of ways grows
exponentially exactly when some part of a loop can read the same characters along two paths and come back to where it
was (`(a+)+`, `(a|a)*`, `(\\w+\\s?)*`). This module turns the expression into a nondeterministic automaton and looks for
such a state in its product with itself (Weber and Seidl 1991). Loops that can repeat an empty text are refused as well.

The number of ways grows with a power of the text's length when two loops that follow each other can read the same
characters (`.*.*x`, `\\d+\\d+a`): some text leads from the first loop to itself, from it to the second, and from that
to itself. A search that may begin anywhere multiplies the ways by the length once more. What grows faster than with the
square of the length is refused: `.*.*x`, but neither `\\d+-` nor `^(.*), (.*)$`, which begins in one place.

Repetitions that have bounds can be slow as well where many of them follow each other (`a{1,60}` five times, `a?` thirty
times): the number of ways is then counted, for texts of one character over and over, and of the words that stand in the
expression.

The answer errs on the side of refusing: what follows a loop is not looked at, and a bounded repetition of more than a
few times counts as a loop; of more than `MOST_BOUNDED` times where powers are counted.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from functools import lru_cache
from re import _casefix  # type: ignore[attr-defined]
from re import _constants as ops  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

MOST_COPIES = 4  # a part repeated at most so often is written out; more often, it is a loop
MOST_BOUNDED = 64
MOST_STATES = 3_000
MOST_WALKS = 200_000
LONG = 256  # so long are the texts for which ways are counted
MOST_WAYS = 64  # for each character of a text; for each pair of characters where a search begins in one place
COPIES = (64, 16, MOST_COPIES)  # how often a bounded repetition is written out to count ways, as far as it fits
SAMPLES = "aZ_ 05\t\n.-é٣\u00a0文"
"""One character of each kind that a class such as \\w can tell apart; those in the expression are added."""


class Explosive(Exception):
    """An expression that can take too long; says which part."""


@dataclass
class Automaton:
    """States joined by steps that read a character of a set, and by steps that read nothing."""

    alphabet: str
    most_copies: int = MOST_COPIES
    copies: int = MOST_COPIES
    reading: dict[int, list[tuple[frozenset[str], int]]] = field(default_factory=lambda: defaultdict(list))
    empty: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    size: int = 1

    def add_state(self) -> int:
        """A new state."""
        if self.size >= MOST_STATES:
            raise Explosive("it is too large to be checked")
        self.size += 1
        return self.size - 1


def find_explosion(expression: str) -> str | None:
    """Why an expression can take more than quadratic time, in words; None if it cannot.

    >>> find_explosion(r"(\\w+\\s?)*$")
    'a part inside a repetition can read the same text in two ways'
    >>> find_explosion(r".*.*x")
    'repetitions that follow each other can read the same text in very many ways'
    >>> find_explosion(r"\\d{3}-\\d{2}-(\\d{4})")
    """
    tree = parser.parse(expression)
    alphabet = "".join(sorted(set(SAMPLES) | _collect_characters(tree)))
    try:
        automaton = Automaton(alphabet)
        _build(automaton, tree, 0, tree.state.flags)
        _refuse_two_ways(automaton)
        _refuse_many_ways(tree, alphabet)
        if _count_loops(tree) < 2:
            return None
        automaton = Automaton(alphabet, MOST_BOUNDED)
        _build(automaton, _drop_harmless_end(list(tree)), 0, tree.state.flags)
        _refuse_powers(automaton, 1 if _begins_in_one_place(tree) else 0)
    except Explosive as reason:
        return str(reason)
    return None


def find_template_mistake(expression: str, put: str) -> str | None:
    """Why a replacement cannot be used with an expression, in words; None if it can.

    >>> find_template_mistake("a(b)", r"\\9")
    'invalid group reference 9'
    """
    try:
        re.compile(expression).sub(put, "")
    except (re.error, IndexError) as mistake:
        return mistake.msg if isinstance(mistake, re.error) else "it names a group that does not exist"
    return None


def _collect_characters(node: Any) -> set[str]:
    """The characters that the expression names, with their neighbors and both cases."""
    found: set[str] = set()
    for item in node:
        if isinstance(item, int) and not isinstance(item, bool) and 0 < item < 0x110000 - 1:
            found |= {case for sign in (item - 1, item, item + 1) for case in _list_cases(chr(sign))}
        elif isinstance(item, tuple | list | parser.SubPattern):
            found |= _collect_characters(item)
    return {sign for sign in found if len(sign) == 1}


def _list_cases(sign: str) -> set[str]:
    """A character, and what else `re` takes for it where case is ignored: the long s is an s, the Kelvin sign a k."""
    found = {sign}
    for _ in range(2):
        found |= {case(one) for one in found for case in (str.lower, str.upper)}
        found |= {chr(other) for one in found if len(one) == 1 for other in _casefix._EXTRA_CASES.get(ord(one), ())}
    return found


def _count_loops(node: Any) -> int:
    """How many repetitions have no bound, or one that is large."""
    found = 0
    for item in node:
        if isinstance(item, tuple | list | parser.SubPattern):
            found += _count_loops(item)
        if isinstance(item, tuple) and len(item) == 3 and isinstance(item[2], parser.SubPattern):
            found += item[1] > MOST_BOUNDED
    return found


def _build(automaton: Automaton, items: Any, start: int, flags: int) -> int:
    """Add the parts of an expression one after another; says in which state they end."""
    for op, value in items:
        start = _build_part(automaton, op, value, start, flags)
    return start


def _build_part(automaton: Automaton, op: Any, value: Any, start: int, flags: int) -> int:
    if op in (ops.MAX_REPEAT, ops.MIN_REPEAT, ops.POSSESSIVE_REPEAT):
        return _build_repetition(automaton, value, start, flags)
    if op is ops.SUBPATTERN:
        _, added, removed, inner = value
        return _build(automaton, inner, start, (flags | added) & ~removed)
    if op is ops.ATOMIC_GROUP:
        return _build(automaton, value, start, flags)
    if op is ops.BRANCH:
        return _join(automaton, [_build(automaton, one, start, flags) for one in value[1]])
    if op is ops.GROUPREF_EXISTS:
        return _join(automaton, [_build(automaton, one, start, flags) for one in value[1:] if one] + [start])
    if op in (ops.ASSERT, ops.ASSERT_NOT):  # reads nothing itself; what it looks at is one more way to start
        _build(automaton, value[1], start, flags)
        return start
    if op is ops.GROUPREF:  # whatever the group held: any text
        automaton.reading[start].append((frozenset(automaton.alphabet), start))
        return start
    return start if op is ops.AT else _build_character(automaton, op, value, start, flags)


def _build_character(automaton: Automaton, op: Any, value: Any, start: int, flags: int) -> int:
    end = automaton.add_state()
    signs = frozenset(sign for sign in automaton.alphabet if _reads(op, value, sign, flags))
    automaton.reading[start].append((signs, end))
    return end


def _join(automaton: Automaton, ends: list[int]) -> int:
    after = automaton.add_state()
    for end in ends:
        automaton.empty[end].append(after)
    return after


def _build_repetition(automaton: Automaton, value: Any, start: int, flags: int) -> int:
    least, most, inner = value
    if most <= automaton.most_copies:
        least, most, ends = min(least, automaton.copies), min(most, automaton.copies), [start]
        for _ in range(most):
            ends.append(_build(automaton, inner, ends[-1], flags))
        return _join(automaton, ends[least:])
    if inner.getwidth()[0] == 0 and inner.getwidth()[1] > 0:
        raise Explosive("a repetition repeats something that may be empty")
    for _ in range(min(least, 1)):  # what comes before the loop does not change whether the loop has two ways
        start = _build(automaton, inner, start, flags)
    loop = _join(automaton, [start])
    end = _build(automaton, inner, loop, flags)
    automaton.empty[end].append(loop)
    return _join(automaton, [loop])


def _reads(op: Any, value: Any, sign: str, flags: int) -> bool:
    if op is ops.ANY:
        return sign != "\n" or bool(flags & re.DOTALL)
    if op is ops.NOT_LITERAL:
        return not _reads(ops.LITERAL, value, sign, flags)
    if op is ops.LITERAL:
        return sign == chr(value) or bool(flags & re.IGNORECASE and _are_alike(chr(value), chr(value), sign))
    if op is ops.IN:
        negated = bool(value) and value[0][0] is ops.NEGATE
        return any(_reads_member(one, sign, flags) for one in value[negated:]) != negated
    raise Explosive("it uses something that cannot be checked")


def _reads_member(member: Any, sign: str, flags: int) -> bool:
    op, value = member
    if op is ops.RANGE:
        inside = value[0] <= ord(sign) <= value[1]
        return inside or bool(flags & re.IGNORECASE and _are_alike(chr(value[0]), chr(value[1]), sign))
    if op is ops.CATEGORY:
        known = {"DIGIT": r"\d", "SPACE": r"\s", "WORD": r"\w"}
        name = str(value).removeprefix("CATEGORY_")
        inside = re.match(known[name.removeprefix("NOT_")], sign, flags & re.ASCII) is not None
        return inside != name.startswith("NOT_")
    return _reads(op, value, sign, flags)


@lru_cache(maxsize=4096)
def _are_alike(first: str, last: str, sign: str) -> bool:
    """Whether a character is within a range when case is ignored, as `re` itself has it."""
    return re.match(f"[{re.escape(first)}-{re.escape(last)}]", sign, re.IGNORECASE) is not None


Steps = dict[int, list[tuple[frozenset[str], int]]]


def _refuse_two_ways(automaton: Automaton) -> None:
    """Refuse when a state can be left and reached again by two different paths that read the same text."""
    steps = {state: _list_steps(automaton, state) for state in range(automaton.size)}
    reached = {state: _list_reached(steps, state) for state in steps}
    for state in steps:
        around = frozenset(other for other in reached[state] if state in reached[other])
        if around and _has_two_ways(steps, state, around):
            raise Explosive("a part inside a repetition can read the same text in two ways")


def _list_steps(automaton: Automaton, state: int) -> list[tuple[frozenset[str], int]]:
    """What can be read from a state on, after any number of empty steps: one entry for each path."""
    found, waiting = [], [state]
    while waiting:
        at = waiting.pop()
        found += automaton.reading[at]
        waiting += automaton.empty[at]
        if len(found) + len(waiting) > MOST_STATES:
            raise Explosive("it is too large to be checked")
    return found


def _list_reached(steps: Steps, state: int) -> set[int]:
    found: set[int] = set()
    waiting = [state]
    while waiting:
        for _, to in steps[waiting.pop()]:
            if to not in found:
                found.add(to)
                waiting.append(to)
    return found


def _has_two_ways(steps: Steps, state: int, around: frozenset[int]) -> bool:
    """Whether two walks from a state back to it read the same text and differ somewhere."""
    seen = {(state, state, False)}
    waiting = [(state, state, False)]
    while waiting:
        left, right, differ = waiting.pop()
        for i, (one, a) in enumerate(steps[left]):
            for j, (two, b) in enumerate(steps[right]):
                to = (a, b, differ or left != right or i != j)
                if a in around and b in around and to not in seen and not one.isdisjoint(two):
                    seen.add(to)
                    waiting.append(to)
    return (state, state, True) in seen


def _refuse_many_ways(tree: Any, alphabet: str) -> None:
    """Refuse when some text can be read in very many ways, however bounded each repetition is."""
    steps = _write_out(tree, alphabet)
    most = LONG * (LONG if _begins_in_one_place(tree) else 1) * MOST_WAYS
    kinds = {frozenset(n for n, each in enumerate(_list_sets(steps)) if sign in each): sign for sign in alphabet}
    for word in (*kinds.values(), *_list_words(tree)):
        if _count_ways(steps, word, most) > most:
            raise Explosive("repetitions that follow each other can read the same text in very many ways")


def _write_out(tree: Any, alphabet: str) -> Steps:
    """The steps of an expression whose bounded repetitions are written out, as often as that is not too large."""
    items = _drop_harmless_end(list(tree))
    for copies in COPIES:
        automaton = Automaton(alphabet, MOST_BOUNDED, copies)
        try:
            _build(automaton, items, 0, tree.state.flags)
            return {state: _list_steps(automaton, state) for state in range(automaton.size)}
        except Explosive:
            if copies == COPIES[-1]:
                raise
    raise AssertionError


def _list_sets(steps: Steps) -> list[frozenset[str]]:
    return list(dict.fromkeys(signs for each in steps.values() for signs, _ in each))


def _list_words(node: Any) -> set[str]:
    """The runs of characters that stand in an expression."""
    found, run = set[str](), ""
    for item in [*node, None]:
        if isinstance(item, tuple) and item[0] is ops.LITERAL:
            run += chr(item[1])
            continue
        found |= {run} if len(run) > 1 else set()
        run = ""
        if isinstance(item, tuple | list | parser.SubPattern):
            found |= _list_words(item)
    return found


def _count_ways(steps: Steps, word: str, most: int) -> int:
    """How many steps a search makes in a text of one word over and over, from one place, until it gives up."""
    ways, total = {0: 1}, 0
    for place in range(LONG):
        sign, after = word[place % len(word)], dict[int, int]()
        for state, many in ways.items():
            for signs, to in steps[state]:
                if sign in signs:
                    after[to] = after.get(to, 0) + many
        ways, total = after, total + sum(after.values())
        if not ways or total > most:
            break
    return total


def _begins_in_one_place(tree: Any) -> bool:
    return (
        bool(tree)
        and tree[0] in ((ops.AT, ops.AT_BEGINNING), (ops.AT, ops.AT_BEGINNING_STRING))
        and not (tree.state.flags & re.MULTILINE and tree[0][1] is ops.AT_BEGINNING)
    )


def _drop_harmless_end(items: list[Any]) -> list[Any]:
    """The parts of an expression without those at its end that cannot fail: after them nothing is tried again."""
    while items and _cannot_fail(*items[-1]):
        items = items[:-1]
    return items


def _cannot_fail(op: Any, value: Any) -> bool:
    if op is ops.SUBPATTERN:
        return all(_cannot_fail(*item) for item in value[3])
    return op in (ops.MAX_REPEAT, ops.MIN_REPEAT) and value[0] == 0


def _refuse_powers(automaton: Automaton, most: int) -> None:
    """Refuse when more than so many pairs of loops, one after another, can share a text among them."""
    steps = {state: _list_steps(automaton, state) for state in range(automaton.size)}
    reached = {state: _list_reached(steps, state) for state in steps}
    loops = [state for state in steps if state in reached[state]]
    pairs = [(p, q) for p in loops for q in loops if q in reached[p] and p not in reached[q] and _share(steps, p, q)]
    if _measure_depth(pairs, reached) > most:
        raise Explosive("repetitions that follow each other can read the same text")


def _measure_depth(pairs: list[tuple[int, int]], reached: dict[int, set[int]]) -> int:
    """The largest number of pairs of which each begins in or after the loop in which the one before it ends."""
    found = 0
    waiting = [(pair, 1) for pair in pairs]
    while waiting:
        (_, end), depth = waiting.pop()
        found = max(found, depth)
        if depth < 2:  # more is never asked for
            waiting += [(pair, depth + 1) for pair in pairs if pair[0] == end or pair[0] in reached[end]]
    return found


def _share(steps: Steps, p: int, q: int) -> bool:
    """Whether some text leads from one loop to itself, from it to a second, and from the second to itself."""
    seen = {(p, p, q)}
    waiting = [(p, p, q)]
    while waiting:
        first, second, third = waiting.pop()
        for one, a in steps[first]:
            for two, b in steps[second]:
                both = one & two
                for three, c in steps[third] if both else ():
                    to = (a, b, c)
                    if to not in seen and not both.isdisjoint(three):
                        seen.add(to)
                        waiting.append(to)
        if len(seen) > MOST_WALKS:
            raise Explosive("it is too large to be checked")
    return (p, q, q) in seen
