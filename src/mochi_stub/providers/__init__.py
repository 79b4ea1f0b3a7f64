"""HTTP APIs of the providers. Each subpackage decodes requests and encodes replies for one provider."""
