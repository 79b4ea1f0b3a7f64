"""HTTP APIs of the providers. Each wire decodes requests and encodes replies in the format of one provider."""
