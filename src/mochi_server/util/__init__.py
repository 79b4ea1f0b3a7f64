"""General helpers that contain no chat logic."""
