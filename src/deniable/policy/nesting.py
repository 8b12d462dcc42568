"""A tree of categories written inline: nested entries that end in lists of leaves, turned into rows."""

from __future__ import annotations

from collections.abc import Iterator

from deniable.policy.mistakes import Mistakes
from deniable.policy.reading import Entries, Items, Leaf, Tree

Row = tuple[str, ...]


def rows(tree: Tree, mistakes: Mistakes) -> tuple[Row, ...]:
    """One row a leaf: the leaf, its parent, and so on upwards."""
    found = tuple(_branches(tree, (), mistakes))
    seen: set[str] = set()
    for leaf in (row[0] for row in found):
        if leaf in seen:
            mistakes.add(tree.place, f"leaf '{leaf}' stands twice in the tree", "Each leaf once")
        seen.add(leaf)
    if len({len(row) for row in found}) > 1:
        mistakes.add(tree.place, "the leaves of the tree lie at different depths", "All at the same depth")
    return found


def _branches(tree: Tree, above: Row, mistakes: Mistakes) -> Iterator[Row]:
    if isinstance(tree, Entries):
        for key, value in tree.entries:
            yield from _branches(value, (key.text, *above), mistakes)
    elif isinstance(tree, Items) and above:
        for item in tree.items:
            if isinstance(item, Leaf) and not item.missing:
                yield (item.text, *above)
            else:
                mistakes.add(item.place, "a leaf of the tree is not a single value", "Text")
    else:
        mistakes.add(tree.place, "the tree does not end in a list here", "Nested entries that end in lists of leaves")
