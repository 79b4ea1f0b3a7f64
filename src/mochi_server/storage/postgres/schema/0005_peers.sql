-- Servers send requests to each other over HTTP. Older databases have tables that carried them.
DROP TABLE IF EXISTS requests, parts;

-- Where other servers reach this process; empty if it serves no requests.
ALTER TABLE processes ADD COLUMN url text NOT NULL DEFAULT '';

-- With this secret the servers of one database recognize each other's requests.
CREATE TABLE peer_secret (secret text NOT NULL);
INSERT INTO peer_secret VALUES (gen_random_uuid()::text || gen_random_uuid()::text);
