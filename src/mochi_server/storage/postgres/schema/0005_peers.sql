-- Servers now send requests to each other over HTTP. These tables were used for requests before.
DROP TABLE IF EXISTS requests, parts;

-- Address for requests of other servers; empty if the process serves no requests.
ALTER TABLE processes ADD COLUMN url text NOT NULL DEFAULT '';

-- Secret with which the servers of one database authenticate their requests to each other.
CREATE TABLE peer_secret (secret text NOT NULL);
INSERT INTO peer_secret VALUES (gen_random_uuid()::text || gen_random_uuid()::text);
