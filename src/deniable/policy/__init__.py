"""What is protected, for whom, and how much: the values that one policy file becomes.

The way of a file through this room:

- `reading` turns YAML into a tree of values that know their place; `scalars` read single ones by the type wanted.
- `grammar` has the shapes, and `layout`, `masks`, `hierarchies` and `promises` say with them what a policy may hold.
- `checking` (with `singles` and `nesting`) holds the tree against the layout, and `references` follows every name.
- `tables` (with `bounds`, `likeness`, `sidefiles`), `allowances` and `settings` make the values and compare them.
- `document` is the door: `read` and `parse` give a `Policy`, or one refusal with all `mistakes`; `canonical` hashes it.
- `json_schema` and `wording` derive from the same grammar what editors, messages and the reference page say.
- `schema`, `roles`, `unit`, `budget`, `access` are the values, for all other rooms; `advice` comments on them.

No module here sees data: a policy is decided by its own text and by the public lists that it names.
"""
