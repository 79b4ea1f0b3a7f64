-- Sessions of later versions than this server supports. The index is usually empty. Lists use it to omit these sessions.
CREATE INDEX IF NOT EXISTS sessions_of_later_versions ON sessions (key) WHERE
    string_to_array(substring(metadata FROM '"format_version":"([0-9]{1,6}([.][0-9]{1,6})*)"'), '.')::int[] > '{1,3}';
