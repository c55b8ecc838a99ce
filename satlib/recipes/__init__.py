"""The recipes: one TOML file per data set and model."""
