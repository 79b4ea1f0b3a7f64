"""YAML configuration: models, triggers and responses."""
