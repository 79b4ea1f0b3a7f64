-- Small secrets by key, such as the tokens of MCP servers.
CREATE TABLE secrets (key text PRIMARY KEY, data bytea NOT NULL);
