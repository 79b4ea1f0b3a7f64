-- Messages that were replaced and can be shown again. The version that was replaced first has the lowest number.
CREATE TABLE versions (
    session bigint NOT NULL REFERENCES sessions ON DELETE CASCADE,
    number integer NOT NULL,
    version_id text NOT NULL,
    message_id text NOT NULL,           -- message that is shown at its place
    replaced_at text NOT NULL,
    inside text,                        -- version that has this message, NULL for the history
    messages text NOT NULL,
    PRIMARY KEY (session, version_id)
);

CREATE TABLE version_images (
    session bigint NOT NULL,
    version_id text NOT NULL,
    sha256 text NOT NULL,
    PRIMARY KEY (session, version_id, sha256),
    FOREIGN KEY (session, version_id) REFERENCES versions ON DELETE CASCADE
);
CREATE INDEX version_images_by_name ON version_images (sha256);
