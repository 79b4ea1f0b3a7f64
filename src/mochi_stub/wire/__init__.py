"""HTTP APIs of the providers. Each wire decodes the requests of one provider and encodes replies in its format."""
