"""What keeping sessions promises."""
