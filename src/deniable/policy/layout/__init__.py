"""What a policy file may hold, in the shapes of `grammar`: the file, masks, hierarchies, release settings."""
