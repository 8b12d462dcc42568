"""What is protected, for whom, and how much: the values that one policy file becomes.

The way of a file through this package:

- `yaml_tree` turns YAML into a tree of values that know their place, and collects mistakes.
- `grammar` has the shapes, and the modules of `layout` say with them what a policy may hold.
- `check` holds the tree against the layout, reads single values by the type wanted, and follows every name.
- `tables` (with `side_files`), `allowances` and `release_settings` make the values and compare them.
- `document` is the entry point: `read` and `parse` give a `Policy`, or one refusal with all mistakes; it has a hash.
- `json_schema` derives from the same grammar what editors say.
- `schema`, `budget`, `access` are the values, for all other packages; `advice` comments on them.

No module here sees data: a policy is decided by its own text and by the public lists that it names."""
