"""The API contract: the OpenAPI document, its types and its pages."""
