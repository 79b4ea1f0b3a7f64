"""Request and response schemas, one file per router."""
