"""Pictures of rows, one module a kind. `draw` loads matplotlib; nothing else here does."""
