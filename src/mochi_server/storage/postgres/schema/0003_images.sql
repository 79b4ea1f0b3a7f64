-- Images and the messages that reference them. An image is deleted together with its last reference.
CREATE TABLE images (
    sha256 text PRIMARY KEY,
    data bytea NOT NULL
);

CREATE TABLE named_images (
    session bigint NOT NULL,
    position integer NOT NULL,
    sha256 text NOT NULL,
    PRIMARY KEY (session, position, sha256),
    FOREIGN KEY (session, position) REFERENCES messages ON DELETE CASCADE
);
CREATE INDEX named_images_by_name ON named_images (sha256);
