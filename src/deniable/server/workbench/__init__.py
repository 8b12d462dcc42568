"""The workbench: web pages for analysts and for the steward, over the service that every protocol uses.

Pages are rendered here and can be read, and their forms sent, without scripts. Scripts of this server add an editor,
what a question costs as it is typed, and sorting; no other host is asked for anything."""
