"""How `ddefuzz check` does on many models, next to a plain capture and to torch's own draft_export."""
