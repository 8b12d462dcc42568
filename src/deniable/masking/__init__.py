"""De-identification: find identifiers, mask them well, keep joins working. No formal guarantee is made here."""
