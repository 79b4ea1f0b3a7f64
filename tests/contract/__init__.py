"""What clients are told of the server: the OpenAPI document, its types and its pages."""
